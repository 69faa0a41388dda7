//go:build linux

package supervise

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// spawn starts a process in its own process group, and kills and reaps it at the end.
func spawn(t *testing.T, args ...string) int {
	t.Helper()
	pid, err := syscall.ForkExec("/bin/sh", append([]string{"sh", "-c"}, args...), &syscall.ProcAttr{
		Env: os.Environ(), Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Kill(pid, unix.SIGKILL)
		unix.Wait4(pid, nil, 0, nil)
	})
	return pid
}

func TestASweepSparesAProcessThatReusesTheGroupID(t *testing.T) {
	stranger := spawn(t, "exec sleep 1000")
	c := &child{group: processGroup(stranger), changes: make(chan change), released: make(chan struct{}), before: pids(below(unix.Getpid(), nil))}
	c.unwatched.Store(true)
	left := spawn(t, "exec sleep 1000")
	go c.sweep(true)
	j := job{c, t}
	j.expect(childUnwatched)
	j.expect(childEmpty)
	if !gone(left) {
		t.Error("the process that was left was not killed")
	}
	if dead(stranger) {
		t.Error("an unrelated process was killed")
	}
}

func TestTheEndOfTheCommandIsReportedOnce(t *testing.T) {
	r, report, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pid := spawn(t, "exit 3")
	w := &watcher{guardian: guardian{group: processGroup(pid)}, report: report, ended: true}
	for range 10000 {
		if w.reap(); dead(pid) && w.empty {
			break
		}
		time.Sleep(time.Millisecond)
	}
	report.Close()
	var kinds []kind
	for m, err := readMessage(r); err == nil; m, err = readMessage(r) {
		kinds = append(kinds, m.kind)
	}
	if want := []kind{reportEmpty}; !slices.Equal(kinds, want) {
		t.Errorf("reports %q, want %q: the command's end was already reported, and this is an orphan that reuses its id", kinds, want)
	}
}

func TestHelpersAreShownByTheirNames(t *testing.T) {
	j := start(t, "exec sleep 1000", time.Hour)
	shown := func(pid int, want string) {
		t.Helper()
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if got := strings.TrimSpace(string(text)); got != want || err != nil {
			t.Errorf("shown as %q, want %q: %v", got, want, err)
		}
	}
	shown(j.watcher, watcherName)
	shown(int(j.Group()), childName)
}

func TestASignalMaskFitsWordsOfEitherSize(t *testing.T) {
	const mask = 0x8000_0001_4000_0002
	wide, narrow := make([]uint64, 2), make([]uint32, 4)
	split(wide, mask)
	split(narrow, mask)
	if want := []uint64{mask, 0}; !slices.Equal(wide, want) {
		t.Errorf("%x, want %x", wide, want)
	}
	if want := []uint32{0x4000_0002, 0x8000_0001, 0, 0}; !slices.Equal(narrow, want) {
		t.Errorf("%x, want %x", narrow, want)
	}
}
