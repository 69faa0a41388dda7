//go:build linux

package cli

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// beyondReach starts a run as an ordinary user, whose command becomes a root process, as under
// sudo.
func (w *world) beyondReach(args ...string) (p *process, pid int) {
	w.t.Helper()
	if os.Getuid() != 0 {
		w.t.Skip("needs root")
	}
	rooted := filepath.Join(w.dir, asRoot)
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		w.t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(rooted, os.O_CREATE|os.O_WRONLY, 0o755)
	if err == nil {
		_, err = io.Copy(to, from)
		to.Close()
	}
	for dir := w.dir; err == nil && dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		err = os.Chmod(dir, 0o777)
	}
	if err == nil {
		err = os.Chmod(w.control, 0o777)
	}
	if err == nil {
		err = os.Chmod(rooted, os.ModeSetuid|0o755)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	p = &process{Cmd: exec.Command("/proc/self/exe", append(args, "--", rooted)...), w: w, done: make(chan struct{})}
	p.Dir, p.Env, p.Stdout, p.Stderr = w.dir, w.env, &p.out, &p.err
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	p.WaitDelay = 100 * time.Millisecond // the command keeps running, with our pipes
	if err := p.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() { defer close(p.done); p.Wait() }()
	w.t.Cleanup(func() { p.Process.Kill(); <-p.done })
	w.read("rooted.up")
	found := processes(func(stat []string) bool { return stat[1] == strconv.Itoa(watcherOf(w.t, p)) })
	if len(found) != 1 {
		w.t.Fatalf("commands: %v", found)
	}
	w.t.Cleanup(func() { syscall.Kill(found[0], syscall.SIGKILL) })
	return p, found[0]
}

// A run that cannot stop its command says so, and does not confirm a revocation.
func TestACommandBeyondReachIsNotConfirmed(t *testing.T) {
	w := newWorld(t)
	p, pid := w.beyondReach("run", "--ttl", "3", "--kill-after", "0.2", "x")
	w.set("revoked")
	if got := p.code(); got != CodeLost {
		t.Errorf("exit code %d, want %d", got, CodeLost)
	}
	if !runs(pid) || w.has("released") {
		t.Errorf("the command runs = %v, released = %v: want the revocation not confirmed", runs(pid), w.has("released"))
	}
	if text := p.err.String(); !strings.Contains(text, "not stopped") || !strings.Contains(text, `("rooted")`) || !strings.Contains(text, strconv.Itoa(pid)) {
		t.Errorf("stderr %q, want the process by number and name", text)
	}
}

// A lock that was not lost is kept while the command lives, no matter who asked it to end.
func TestALockIsKeptForACommandBeyondReach(t *testing.T) {
	w := newWorld(t)
	p, pid := w.beyondReach("elect", "--ttl", "3", "--kill-after", "0.2", "x")
	p.Process.Signal(syscall.SIGTERM)
	w.eventually("it is reported", func() bool { return strings.Contains(p.err.String(), "is renewed until it ends") })
	time.Sleep(4 * time.Second) // more than the TTL
	if w.has("released") || !runs(p.Process.Pid) {
		t.Fatal("the lock was given up while the command lives")
	}
	syscall.Kill(pid, syscall.SIGKILL)
	if got := p.code(); got != 128+9 || !w.has("released") {
		t.Errorf("exit code %d, released = %v", got, w.has("released"))
	}
}
