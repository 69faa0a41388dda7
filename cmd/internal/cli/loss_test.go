//go:build linux

package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// family starts a shell, a child and a grandchild of it, and writes their process ids. on is how
// they handle TERM.
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

// Killing run's own group kills neither the watcher nor the command with it.
func TestAKilledGroupOfRunLeavesNothing(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "x", "--", "sh", "-c", family(""))
	pids := w.pids("pids")
	syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
	w.gone(pids...)
}

// When both are killed together, only the kernel is left to end the command itself.
func TestAKilledRunAndWatcherLeaveNoCommand(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "x", "--", "sh", "-c", family(""))
	pids := w.pids("pids")
	watcher := watcherOf(t, p)
	syscall.Kill(p.Process.Pid, syscall.SIGSTOP) // so that it does not act between the two
	syscall.Kill(watcher, syscall.SIGKILL)
	syscall.Kill(p.Process.Pid, syscall.SIGKILL)
	w.gone(pids[0])
}

// A signal to every process with the name of the program spares the watcher.
func TestTheWatcherDoesNotBearTheNameOfTheProgram(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "x", "--", "sh", "-c", family(""))
	w.pids("pids")
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", watcherOf(t, p)))
	if err != nil || len(line) == 0 || strings.Contains(string(line), "lockstep") {
		t.Errorf("the watcher's arguments are %q, %v", line, err)
	}
}

// watcherOf returns the only child of run.
func watcherOf(t *testing.T, p *process) int {
	t.Helper()
	all := children(p.Process.Pid)
	if len(all) != 1 {
		t.Fatalf("children of run: %v", all)
	}
	return all[0]
}

// escapes starts processes in each way that leaves the process group of the command, and waits.
// Their process ids are in the file pids, that of the command last.
const escapes = `setsid sleep 1001 & echo $! >> part
timeout 1000 sh -c 'echo $$ >> part; exec sleep 1002' &
nohup sleep 1003 >/dev/null 2>&1 & echo $! >> part
(setsid sh -c '(setsid sh -c "echo \$\$ >> part; exec sleep 1004" &) ; exit' &)
env -i sh -c 'echo $$ >> part; exec sleep 1005' &
bash -c 'set -m; sleep 1006 & echo $! >> part; wait' &
bash --norc --noprofile -i -c 'sleep 1007 & echo $! >> part; wait' 2>/dev/null &
until [ $(wc -l < part) -eq 7 ]; do sleep 0.01; done
echo $$ >> part; mv part pids; sleep 1000`

// Each of these ends a run, and must leave nothing that its command started.
func TestWhatLeavesTheGroupIsStoppedToo(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(w *world, p *process)
	}{
		{"killed", func(w *world, p *process) { p.Process.Kill() }},
		{"frozen", func(w *world, p *process) { p.Process.Signal(syscall.SIGSTOP) }},
		{"revoked", func(w *world, p *process) { w.set("revoked") }},
		{"expired", func(w *world, p *process) { w.set("expired") }},
		{"cut", func(w *world, p *process) { w.set("cut") }},
		{"interrupted twice", func(w *world, p *process) {
			p.Process.Signal(syscall.SIGINT)
			time.Sleep(50 * time.Millisecond)
			p.Process.Signal(syscall.SIGINT)
		}},
		{"unwatched", func(w *world, p *process) { syscall.Kill(watcherOf(w.t, p), syscall.SIGKILL) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			p := w.start("run", "--ttl", "3", "--kill-after", "0.3", "x", "--", "sh", "-c", `trap "" INT; `+escapes)
			pids := w.pids("pids")
			c.end(w, p)
			w.gone(pids...)
			if w.has("revoked") {
				w.eventually("released", func() bool { return w.has("released") })
			}
		})
	}
}

// What the kernel reports decides: a revocation is confirmed after the last process has ended.
func TestARevocationIsConfirmedAfterTheLastProcess(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "--kill-after", "0.3", "x", "--", "sh", "-c", escapes)
	pids := w.pids("pids")
	w.set("revoked")
	w.eventually("released", func() bool {
		released := w.has("released")
		if released && slices.ContainsFunc(pids, runs) {
			t.Fatal("the holder confirmed while something of its command was alive")
		}
		return released
	})
	if got := p.code(); got != CodeLost {
		t.Errorf("exit code %d, want %d", got, CodeLost)
	}
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
	// The lease was last renewed before the freeze, so it ended within one TTL of it.
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
	watcher := watcherOf(t, p)
	syscall.Kill(watcher, syscall.SIGSTOP)
	time.Sleep(4500 * time.Millisecond) // its deadline passes while newer ones wait in the pipe
	syscall.Kill(watcher, syscall.SIGCONT)
	time.Sleep(300 * time.Millisecond)
	if !runs(pid) {
		t.Error("the watcher killed the group of a lease that was renewed")
	}
	os.WriteFile(w.dir+"/enough", nil, 0o600)
	if got := p.code(); got != 0 {
		t.Errorf("exit code %d; stderr: %s", got, p.err.String())
	}
}

// Without its watcher, nothing would stop the command if run were killed next.
func TestADeadWatcherEndsTheCommand(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "x", "--", "sh", "-c", family(""))
	pids := w.pids("pids")
	syscall.Kill(watcherOf(t, p), syscall.SIGKILL)
	w.gone(pids...)
	if got := p.code(); got != 128+9 {
		t.Errorf("exit code %d, want 137", got)
	}
	if !w.has("released") || !strings.Contains(p.err.String(), "the watcher was killed") {
		t.Errorf("want the lock released and a word of the watcher; stderr: %s", p.err.String())
	}
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

// Processes that clean up after TERM get their time, although the shell above them ends at once.
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
