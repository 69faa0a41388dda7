//go:build linux

package cli

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// family starts a shell, a child of it and a grandchild, and writes their numbers.
// on is what they do about TERM.
func family(on string) string {
	return `trap "` + on + `" TERM
sh -c 'trap "` + on + `" TERM; sleep 1000 >/dev/null 2>&1 & echo $! > grandchild; while :; do sleep 0.01; done' >/dev/null 2>&1 &
until [ -s grandchild ]; do sleep 0.01; done
echo $$ $! $(cat grandchild) > pids
while :; do sleep 0.01; done`
}

func TestAKilledRunLeavesNothingOfTheGroup(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "x", "--", "sh", "-c", family(""))
	pids := w.pids("pids")
	p.Process.Kill()
	w.gone(pids...)
}

// The kill of run's own group takes neither the watcher nor the command along.
func TestAKilledGroupOfRunLeavesNothing(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "x", "--", "sh", "-c", family(""))
	pids := w.pids("pids")
	syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
	w.gone(pids...)
}

func TestAKilledRunAndWatcherLeaveNoDirectChild(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "x", "--", "sh", "-c", family(""))
	pids := w.pids("pids")
	for _, pid := range children(p.Process.Pid) {
		if pid != pids[0] { // the watcher
			syscall.Kill(pid, syscall.SIGSTOP)
			defer syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	p.Process.Kill()
	w.gone(pids[0])
}

func TestAFrozenRunLosesItsGroupWhenTheLeaseEnds(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "--ttl", "2", "x", "--", "sh", "-c", family(""))
	pids := w.pids("pids")
	p.Process.Signal(syscall.SIGSTOP)
	frozen := time.Now()
	time.Sleep(200 * time.Millisecond)
	for _, pid := range pids {
		if !runs(pid) {
			t.Fatal("the group is gone before its lease")
		}
	}
	w.gone(pids...)
	// The lease was renewed before the freeze, so it has ended one TTL after it.
	if took := time.Since(frozen); took > 4*time.Second {
		t.Errorf("the group lived for %v of a lease of 2 s", took)
	}
	p.Process.Signal(syscall.SIGCONT)
	if got := p.code(); got != CodeLost {
		t.Errorf("exit code %d, want %d", got, CodeLost)
	}
}

func TestEverythingFrozenForThreeTTLsIsKilledOnWaking(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "--ttl", "3", "x", "--", "sh", "-c", family("echo term >> got"))
	pids := w.pids("pids")
	all := append(append([]int{p.Process.Pid}, children(p.Process.Pid)...), pids...)
	for _, pid := range all {
		syscall.Kill(pid, syscall.SIGSTOP)
	}
	time.Sleep(9 * time.Second)
	for _, pid := range pids {
		if !runs(pid) {
			t.Fatal("something died while everything was frozen")
		}
	}
	woken := time.Now()
	for _, pid := range all {
		syscall.Kill(pid, syscall.SIGCONT)
	}
	w.gone(pids...)
	t.Logf("the group was gone %v after waking", time.Since(woken))
	if took := time.Since(woken); took > 2*time.Second { // 100 ms on an idle machine
		t.Errorf("the group lived for %v after waking", took)
	}
	if got := p.code(); got != CodeLost {
		t.Errorf("exit code %d, want %d", got, CodeLost)
	}
	if _, err := os.Stat(w.dir + "/got"); err == nil {
		t.Error("TERM was sent after the lease was over: want KILL at once")
	}
	oneLineOf(t, p.err.String())
}

func TestTheWatcherAloneFrozenDoesNoHarm(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "--ttl", "3", "x", "--", "sh", "-c", `echo $$ > pid; until [ -e enough ]; do sleep 0.01; done`)
	pid := w.pids("pid")[0]
	watcher := slices.DeleteFunc(children(p.Process.Pid), func(c int) bool { return c == pid })
	if len(watcher) != 1 {
		t.Fatalf("children of run but the command: %v", watcher)
	}
	syscall.Kill(watcher[0], syscall.SIGSTOP)
	time.Sleep(4500 * time.Millisecond) // its deadline passes, and newer ones wait in the pipe
	syscall.Kill(watcher[0], syscall.SIGCONT)
	time.Sleep(300 * time.Millisecond)
	if !runs(pid) {
		t.Error("the watcher killed the group of a lease that was renewed")
	}
	os.WriteFile(w.dir+"/enough", nil, 0o600)
	if got := p.code(); got != 0 {
		t.Errorf("exit code %d; stderr: %s", got, p.err.String())
	}
}

func TestADeadWatcherIsReplaced(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "x", "--", "sh", "-c", family(""))
	pids := w.pids("pids")
	watcher := func() int {
		for _, c := range children(p.Process.Pid) {
			if c != pids[0] && runs(c) {
				return c
			}
		}
		return 0
	}
	first := watcher()
	syscall.Kill(first, syscall.SIGKILL)
	w.eventually("a new watcher", func() bool { second := watcher(); return second != 0 && second != first })
	if !runs(pids[0]) {
		t.Fatal("the command ended with its watcher")
	}
	w.eventually("the new watcher is in place", func() bool { return watcher() != 0 && blocked(watcher()) })
	p.Process.Kill()
	w.gone(pids...)
}

// blocked reports whether a process sleeps, as a watcher does that has started.
func blocked(pid int) bool {
	state, err := processState(pid)
	return err == nil && state == 'S'
}

func TestFailingRenewalSendsTermAndThenKill(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "--ttl", "1.5", "--kill-after", "0.4", "x", "--", "sh", "-c", family("echo term >> got"))
	pids := w.pids("pids")
	w.set("cut")
	w.gone(pids...)
	if got := p.code(); got != CodeLost {
		t.Errorf("exit code %d, want %d", got, CodeLost)
	}
	w.read("got") // TERM came, and was ignored until KILL
	if want := "lockstep: run: lost x (token 41): "; !strings.Contains(p.err.String(), want) {
		t.Errorf("stderr %q: want %q in it", p.err.String(), want)
	}
}

func TestARunIsOverOnceTermWasSent(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "--ttl", "1.5", "--kill-after", "0.5", "x", "--", "sh", "-c", `trap "sleep 0.2; exit 0" TERM; echo ready > ready; while :; do sleep 0.01; done`)
	w.read("ready")
	w.set("cut")
	if got := p.code(); got != CodeLost {
		t.Errorf("exit code %d, want %d although the command ended in time", got, CodeLost)
	}
	if !w.has("closed") {
		t.Error("the session was not closed")
	}
}

func TestOneFailedRenewalIsNoLoss(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "--ttl", "3", "x", "--", "sh", "-c", "echo ready > ready; sleep 3")
	w.read("ready")
	w.set("cut")
	time.Sleep(1200 * time.Millisecond)
	w.unset("cut")
	if got := p.code(); got != 0 {
		t.Errorf("exit code %d; stderr: %s", got, p.err.String())
	}
}

func TestAnEndedSessionKillsAtOnce(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "x", "--", "sh", "-c", family("echo term >> got"))
	pids := w.pids("pids")
	w.set("expired")
	w.gone(pids...)
	if got := p.code(); got != CodeLost {
		t.Errorf("exit code %d, want %d", got, CodeLost)
	}
	if _, err := os.Stat(w.dir + "/got"); err == nil {
		t.Error("want KILL without TERM")
	}
}

func TestARevokedLockSendsTermKillAndThenConfirms(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "--kill-after", "0.3", "x", "--", "sh", "-c", family("echo term >> got"))
	pids := w.pids("pids")
	w.set("revoked")
	w.read("got")
	if w.has("released") {
		t.Error("released before the command was gone")
	}
	w.eventually("released", func() bool {
		released := w.has("released")
		if released && slices.ContainsFunc(pids, runs) {
			t.Fatal("the holder confirmed while its group was alive")
		}
		return released
	})
	if got := p.code(); got != CodeLost {
		t.Errorf("exit code %d, want %d", got, CodeLost)
	}
	if want := "revoked by alice"; !strings.Contains(p.err.String(), want) {
		t.Errorf("stderr %q: want %q in it", p.err.String(), want)
	}
}

// Those who clean up after TERM get their time, although the shell above them ends at once.
func TestTheRestOfAGroupHasUntilKillAfter(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "--kill-after", "3", "x", "--", "sh", "-c",
		`sh -c 'trap "sleep 0.3; echo cleaned > end; exit" TERM; echo ready > ready; while :; do sleep 0.01; done' >/dev/null 2>&1 &
until [ -s ready ]; do sleep 0.01; done; echo up > up; exec sleep 1000`)
	w.read("up")
	w.set("revoked")
	if got := p.code(); got != CodeLost {
		t.Errorf("exit code %d, want %d", got, CodeLost)
	}
	if got := w.read("end"); got[0] != "cleaned" {
		t.Errorf("got %q", got)
	}
}

func TestTheCommandEndsWithStdinWhenAsked(t *testing.T) {
	w := newWorld(t)
	r, feeder, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := w.startWith(r, "run", "--end-with", "stdin", "x", "--", "sh", "-c", "echo $$ > pid; exec sleep 1000")
	pid := w.pids("pid")
	feeder.Close()
	w.gone(pid...)
	if got := p.code(); got != 128+15 {
		t.Errorf("exit code %d, want 143", got)
	}
	if !w.has("released") {
		t.Error("the lock was not released")
	}
}

func TestTheCommandEndsWithTheParentWhenAsked(t *testing.T) {
	w := newWorld(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The shell in between stands for "docker exec" or ssh.
	p := w.start("run", "outer", "--", "sh", "-c",
		self+` run --end-with parent x -- sh -c 'echo $$ > pid; exec sleep 1000' >/dev/null 2>&1 & echo $$ > shell; wait`)
	inner := w.pids("pid")
	shell := w.pids("shell")
	w.unset("released")
	syscall.Kill(shell[0], syscall.SIGKILL)
	w.gone(inner...)
	p.code()
}
