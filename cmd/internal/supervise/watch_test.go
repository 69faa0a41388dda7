//go:build linux

package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if code, mine := Hidden(os.Args); mine {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func TestAGuardianIsDueAtItsDeadlineOnceItHasAChild(t *testing.T) {
	const s = time.Second
	var g guardian
	if g.due(100 * s) {
		t.Error("due before anything is known")
	}
	g.take(message{watchDeadline, int64(10 * s)})
	if g.due(100*s) || g.armed() {
		t.Error("due without a group")
	}
	g.group = 1
	if g.armed() {
		t.Error("armed with group 1")
	}
	g.group = 4711
	if g.due(10*s-1) || !g.due(10*s) {
		t.Error("want it due at 10 s and not before")
	}
	if got := g.sleep(10*s - 7*time.Millisecond); got != 7*time.Millisecond {
		t.Errorf("sleeps %v, want 7 ms", got)
	}
	if got := g.sleep(5 * s); got != watchInterval {
		t.Errorf("sleeps %v, want %v", got, watchInterval)
	}
	g.take(message{watchDeadline, int64(20 * s)})
	if g.due(10 * s) {
		t.Error("due although the deadline has moved")
	}
	if g.take(message{kind: watchNoMore}) {
		t.Error("continues after watchNoMore")
	}
}

func TestMessagesSurviveEncoding(t *testing.T) {
	for _, m := range []message{{watchGo, 4711}, {watchDeadline, 1<<62 + 1}, {watchNoMore, 0}, {reportFailed, -1}} {
		b := m.encode()
		if got, err := readMessage(bytes.NewReader(b)); len(b) != messageSize || got != m || err != nil {
			t.Errorf("%v: % x comes back as %v, %v", m, b, got, err)
		}
	}
	var pipe bytes.Buffer
	words := []string{"", "/bin/sh", "sh", "-c", "echo \n \x01"}
	sendWords(&pipe, words)
	if got, err := receiveWords(&pipe); err != nil || !slices.Equal(got, words) {
		t.Errorf("words %q come back as %q, %v", words, got, err)
	}
	if _, err := receiveWords(bytes.NewReader(bytes.Repeat([]byte{0xff}, 8))); err == nil {
		t.Error("an excessive size was accepted")
	}
}

// A job is a child and its changes.
type job struct {
	*child
	t *testing.T
}

// start starts a shell line as a child of a watcher.
func start(t *testing.T, line string, lease time.Duration) job {
	t.Helper()
	c, err := startChild(program{path: "/bin/sh", args: []string{"sh", "-c", line}, env: append(os.Environ(), "WORD=given")}, Now()+lease)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 100 {
			if len(c.Left()) == 0 {
				break
			}
			c.Kill()
			time.Sleep(time.Millisecond)
		}
		c.Release()
	})
	return job{c, t}
}

// expect waits for a change of this kind.
func (j job) expect(what whatHappened) change {
	j.t.Helper()
	select {
	case change := <-j.Changes():
		if change.what != what {
			j.t.Fatalf("change %+v, want one of kind %d", change, what)
		}
		return change
	case <-time.After(20 * time.Second):
		j.t.Fatalf("no change of kind %d", what)
		return change{}
	}
}

// processesIn reads the process ids that a job wrote to a file, and waits until there are n.
func processesIn(t *testing.T, path string, n int) []int {
	t.Helper()
	for range 20000 {
		text, _ := os.ReadFile(path)
		if words := strings.Fields(string(text)); len(words) >= n && strings.HasSuffix(string(text), "\n") {
			var pids []int
			for _, word := range words {
				pid, _ := strconv.Atoi(word)
				pids = append(pids, pid)
				t.Cleanup(func() { unix.Kill(pid, unix.SIGKILL) })
			}
			return pids
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%s never had %d process ids", path, n)
	return nil
}

func dead(pid int) bool {
	p, _ := look(pid)
	return p.zombie
}

func gone(pids ...int) bool {
	for range 10000 {
		if !slices.ContainsFunc(pids, func(pid int) bool { return !dead(pid) }) {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// escapes returns a shell line that starts processes in every way that leaves the process group,
// and writes their process ids to a file.
func escapes(path string) string {
	return `setsid sleep 1001 & echo $! >> PATH.part
timeout 1000 sh -c 'echo $$ >> PATH.part; exec sleep 1002' &
nohup sleep 1003 >/dev/null 2>&1 & echo $! >> PATH.part
(setsid sh -c '(setsid sh -c "echo \$\$ >> PATH.part; exec sleep 1004" &) ; exit' &)
env -i sh -c 'echo $$ >> PATH.part; exec sleep 1005' &
until [ $(wc -l < PATH.part) -eq 5 ]; do sleep 0.01; done
echo $$ >> PATH.part; mv PATH.part PATH; sleep 1000`
}

func familyOf(t *testing.T) (j job, pids []int) {
	path := t.TempDir() + "/pids"
	j = start(t, strings.ReplaceAll(escapes(path), "PATH", path), time.Hour)
	j.Go()
	return j, processesIn(t, path, 6)
}

func TestNothingBelowAWatcherOutlivesItsDeadline(t *testing.T) {
	j, pids := familyOf(t)
	if err := j.Feed(Now() + 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	j.expect(childOverdue)
	if change := j.expect(childEnded); change.status.Code() != 128+9 {
		t.Errorf("code %d, want 137", change.status.Code())
	}
	j.expect(childEmpty)
	if !gone(pids...) {
		t.Error("something outlived the deadline")
	}
}

func TestNothingBelowAWatcherOutlivesItsParent(t *testing.T) {
	j, pids := familyOf(t)
	j.feed.Close() // as the kernel does when this program ends
	if !gone(pids...) {
		t.Error("something outlived the parent of the watcher")
	}
}

func TestAKillReachesWhatAFrozenWatcherDoesNot(t *testing.T) {
	j, pids := familyOf(t)
	unix.Kill(j.watcher, unix.SIGSTOP)
	for range 100 {
		j.Kill()
		time.Sleep(time.Millisecond)
	}
	if !gone(pids...) {
		t.Error("something outlived the kill")
	}
	unix.Kill(j.watcher, unix.SIGCONT)
	j.expect(childEnded)
	j.expect(childEmpty)
}

func TestAKillCatchesProcessesThatKeepForking(t *testing.T) {
	path := t.TempDir() + "/pids"
	// Each process starts the next one and ends; three of them do so at once.
	chain := "#!/bin/sh\nsetsid " + path + ".chain &\n"
	if err := os.WriteFile(path+".chain", []byte(chain), 0o700); err != nil {
		t.Fatal(err)
	}
	j := start(t, path+".chain & "+path+".chain & "+path+".chain; sleep 0.2; echo $$ > "+path+"; sleep 1000", time.Hour)
	j.Go()
	processesIn(t, path, 1)
	j.feed.Close()
	j.expect(childEnded)
	j.expect(childEmpty) // within killFor
	text, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/children")
	if err == nil && len(j.Left()) > 0 {
		t.Errorf("left: %v; our children: %s", Name(j.Left()), text)
	}
	all, _ := parentTable()
	for _, children := range all {
		for _, pid := range children {
			if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(string(line), path+".chain") {
				unix.Kill(pid, unix.SIGKILL)
				t.Errorf("process %d is still running", pid)
			}
		}
	}
}

func TestProcessesLeftByACommandAreListed(t *testing.T) {
	path := t.TempDir() + "/pids"
	j := start(t, "setsid sleep 1000 & echo $! > "+path+"; exit 3", time.Hour)
	j.Go()
	pid := processesIn(t, path, 1)[0]
	if change := j.expect(childEnded); change.status.Code() != 3 {
		t.Errorf("code %d, want 3", change.status.Code())
	}
	j.MarkEnded()
	left := j.Left()
	for range 20000 { // it is a shell at first
		if strings.Contains(Name(left), `("sleep")`) {
			break
		}
		time.Sleep(time.Millisecond)
		left = j.Left()
	}
	if len(left) != 1 || left[0].PID != pid || !strings.Contains(Name(left), `("sleep")`) {
		t.Errorf("left %s, want %d", Name(left), pid)
	}
	unix.Kill(pid, unix.SIGKILL)
	j.expect(childEmpty)
}

func TestAReleasedWatcherKillsNothing(t *testing.T) {
	path := t.TempDir() + "/pids"
	j := start(t, "sleep 1000 & echo $! > "+path+"; exit", time.Hour)
	j.Go()
	pid := processesIn(t, path, 1)[0]
	j.expect(childEnded)
	unix.Kill(j.watcher, unix.SIGSTOP) // a frozen watcher is released too
	j.Release()
	j.Release() // a second call does nothing
	time.Sleep(20 * time.Millisecond)
	if dead(pid) {
		t.Error("the process that the command left is gone")
	}
}

func TestASignalToAllReachesOtherGroups(t *testing.T) {
	path := t.TempDir() + "/got"
	inner := `trap "echo term >> PATH; exit" TERM; echo up >> PATH.up; while :; do sleep 0.01; done`
	line := strings.ReplaceAll(`setsid sh -c '`+inner+`' & `+inner, "PATH", path)
	j := start(t, line, time.Hour)
	j.Go()
	for range 5000 {
		if text, _ := os.ReadFile(path + ".up"); strings.Count(string(text), "up") == 2 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := j.SignalAll(unix.SIGTERM); err != nil {
		t.Error(err)
	}
	j.expect(childEnded)
	j.expect(childEmpty)
	if text, _ := os.ReadFile(path); string(text) != "term\nterm\n" {
		t.Errorf("got %q, want TERM in both groups", text)
	}
}

func TestAChildWaitsForGo(t *testing.T) {
	path := t.TempDir() + "/ran"
	j := start(t, `echo "$WORD" > `+path+`; kill -STOP $$; exit 3`, time.Hour)
	time.Sleep(50 * time.Millisecond)
	if _, err := os.Stat(path); err == nil {
		t.Error("the command ran before Go")
	}
	if err := j.Go(); err != nil {
		t.Fatal(err)
	}
	if change := j.expect(childStopped); change.signal != unix.SIGSTOP {
		t.Fatalf("change %+v, want a stop", change)
	}
	if text, _ := os.ReadFile(path); string(text) != "given\n" {
		t.Errorf("the command saw %q", text)
	}
	j.Signal(unix.SIGCONT)
	if change := j.expect(childEnded); change.status.Code() != 3 || change.status.Signaled() {
		t.Errorf("code %d, want 3", change.status.Code())
	}
	j.MarkEnded()
	j.expect(childEmpty)
	if err := errors.Join(j.Signal(unix.SIGTERM), j.SignalAll(unix.SIGTERM), j.Kill()); err != nil {
		t.Errorf("a signal to a command that is gone: %v", err)
	}
}

func TestAWaitingChildEndsWithItsParent(t *testing.T) {
	path := t.TempDir() + "/ran"
	j := start(t, "touch "+path, time.Hour)
	child := int(j.Group())
	j.feed.Close()
	if !gone(child) {
		t.Error("the waiting child is still running")
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the command ran")
	}
}

func TestAScriptWithoutAnInterpreterLineRunsInAShell(t *testing.T) {
	path := t.TempDir() + "/script"
	if err := os.WriteFile(path, []byte("exit $1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := startChild(program{path: path, args: []string{"script", "5"}}, Now()+time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	c.Go()
	if change := (job{c, t}).expect(childEnded); change.status.Code() != 5 {
		t.Errorf("code %d, want 5", change.status.Code())
	}
}

func TestASignalToAllProcessesPanics(t *testing.T) {
	for _, g := range []processGroup{-1, 0, 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a signal to group %d was sent", g)
				}
			}()
			g.Signal(0)
		}()
	}
}
