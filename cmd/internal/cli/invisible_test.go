//go:build linux

package cli

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestIgnoredAndBlockedSignalsStaySo(t *testing.T) {
	w := newWorld(t)
	self := testBinary(t)
	// "go test" links without a symbol table (with -c it does not): then only these settings
	// survive. accept/contain.sh tests the program itself.
	before := []string{"--ignore-signal=HUP,INT,TSTP,TTOU", "--block-signal=USR2"}
	if program, err := elf.Open(self); err == nil && program.Section(".symtab") != nil {
		before = []string{"--ignore-signal=PIPE,HUP,INT,TERM,USR1,TSTP,TTOU,CHLD,ALRM", "--block-signal=USR2,TERM,QUIT"}
	}
	look := func(under ...string) string {
		args := append(append(before[:len(before):len(before)], under...), "grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status")
		cmd := exec.Command("env", args...)
		cmd.Env = w.env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	want := look()
	for _, command := range []string{"run", "elect"} {
		if got := look(self, command, "x", "--"); got != want {
			t.Errorf("under %s:\n%swithout:\n%s", command, got, want)
		}
	}
}

func TestEverySignalIsPassedOnAndNoneEndsRun(t *testing.T) {
	w := newWorld(t)
	signals := []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGABRT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTERM,
		unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGWINCH, unix.SIGIO, unix.SIGPWR, 37, 64}
	script := "for s in"
	for _, sig := range signals {
		script += fmt.Sprintf(" %d", sig)
	}
	script += `; do trap "echo $s >> got" $s; done; echo ready > ready; until [ -e enough ]; do :; done`
	p := w.start("run", "x", "--", "bash", "-c", script)
	w.read("ready")
	for _, sig := range signals {
		p.Process.Signal(sig)
		w.eventually(sig.String(), func() bool {
			text, _ := os.ReadFile(filepath.Join(w.dir, "got"))
			return strings.Contains("\n"+string(text), fmt.Sprintf("\n%d\n", sig))
		})
	}
	os.WriteFile(filepath.Join(w.dir, "enough"), nil, 0o600)
	if got := p.code(); got != 0 {
		t.Errorf("exit code %d; stderr: %s", got, p.err.String())
	}
}

func TestSignalsForTheCommandDoNotEndTheWaiting(t *testing.T) {
	w := newWorld(t)
	w.set("busy")
	p := w.start("run", "x", "--", "true")
	w.eventually("queued", func() bool { return w.has("queued") })
	for _, sig := range []syscall.Signal{unix.SIGUSR2, unix.SIGALRM, unix.SIGXCPU, unix.SIGPWR, unix.SIGABRT, 37} {
		p.Process.Signal(sig)
	}
	time.Sleep(50 * time.Millisecond)
	w.unset("busy")
	if got := p.code(); got != 0 {
		t.Errorf("exit code %d: %s", got, p.err.String())
	}
}

func TestAStoppedCommandWithoutATerminalIsToldAndEnds(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			w := newWorld(t)
			p := w.start("run", "x", "--", "sh", "-c", "echo $$ > pid; kill -TTIN $$; sleep 1000")
			w.pids("pid")
			p.SysProcAttr.Setsid = true
			w.eventually("it is reported", func() bool { return strings.Contains(p.err.String(), "stopped by SIGTTIN") || hasTerminal() })
			p.Process.Signal(sig)
			if got := p.code(); got != 128+int(sig) {
				t.Errorf("exit code %d, want %d", got, 128+int(sig))
			}
		})
	}
}

func hasTerminal() bool {
	f, err := os.Open("/dev/tty")
	if err == nil {
		f.Close()
	}
	return err == nil
}

// When the parent ends while the run waits for the lock, the run ends too: the command is never
// started.
func TestTheQueueIsLeftWithTheParent(t *testing.T) {
	for _, command := range []string{"run x -- touch ran", "elect x -- touch ran", "hold x"} {
		t.Run(strings.Fields(command)[0], func(t *testing.T) {
			w := newWorld(t)
			w.set("busy")
			verb, rest, _ := strings.Cut(command, " ")
			shell := exec.Command("sh", "-c", fmt.Sprintf("%s %s --end-with parent %s 2>err; echo $? > code; :", testBinary(t), verb, rest))
			shell.Dir, shell.Env = w.dir, w.env
			if err := shell.Start(); err != nil {
				t.Fatal(err)
			}
			w.eventually("queued", func() bool { return w.has("queued") })
			shell.Process.Kill()
			shell.Wait()
			w.eventually("the queue is left", func() bool { return !w.has("queued") && w.has("closed") })
			w.unset("busy")
			w.eventually("it is reported", func() bool {
				text, _ := os.ReadFile(filepath.Join(w.dir, "err"))
				return strings.Contains(string(text), "parent process is gone")
			})
			if w.has("granted") {
				t.Error("it was granted")
			}
		})
	}
}

func TestTheQueueIsLeftWithStdin(t *testing.T) {
	w := newWorld(t)
	w.set("busy")
	r, feeder, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := w.startWith(r, "run", "--end-with", "stdin", "x", "--", "touch", "ran")
	w.eventually("queued", func() bool { return w.has("queued") })
	feeder.Close()
	if got := p.code(); got != 128+15 {
		t.Errorf("exit code %d, want 143", got)
	}
	if w.has("granted") || w.has("queued") {
		t.Error("want no grant and an empty queue")
	}
}

func TestWhatACommandLeavesRunningIsToldOrWaitedFor(t *testing.T) {
	w := newWorld(t)
	const line = "setsid sleep 1.5 >/dev/null 2>&1 & exit 3"
	_, stderr := w.run(3, "run", "x", "--", "sh", "-c", line)
	// The process may not have reached its exec yet.
	if !strings.Contains(stderr, `"sleep"`) && !strings.Contains(stderr, `"setsid"`) && !strings.Contains(stderr, `("sh")`) {
		t.Errorf("stderr %q, want what is left", stderr)
	}
	began := time.Now()
	if _, stderr = w.run(3, "run", "--wait-all", "x", "--", "sh", "-c", line); stderr != "" || time.Since(began) < 1500*time.Millisecond {
		t.Errorf("ended after %v, stderr %q: want it to wait", time.Since(began), stderr)
	}
}

func TestALossEndsTheWaitForAll(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "--wait-all", "x", "--", "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $! > left")
	left := w.pids("left")
	time.Sleep(50 * time.Millisecond)
	w.set("expired")
	w.gone(left...)
	if got := p.code(); got != CodeLost {
		t.Errorf("exit code %d, want %d", got, CodeLost)
	}
}

func TestALockIsKeptAtLeastSoLong(t *testing.T) {
	w := newWorld(t)
	began := time.Now()
	w.run(4, "run", "--at-least", "1", "x", "--", "sh", "-c", "exit 4")
	if took := time.Since(began); took < time.Second || !w.has("released") {
		t.Errorf("ended after %v, released = %v", took, w.has("released"))
	}
	p := w.start("run", "--at-least", "1h", "x", "--", "sh", "-c", "echo up > up")
	w.read("up")
	w.eventually("the command has ended", func() bool { return len(children(p.Process.Pid)) == 0 })
	time.Sleep(50 * time.Millisecond)
	p.stopsAndGoesOn()
	p.Process.Signal(syscall.SIGTERM)
	if got := p.code(); got != 0 && got != 128+15 {
		t.Errorf("exit code %d", got)
	}
}

func TestALockIsNotKeptForACommandThatNeverStarted(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-c", "ulimit -n 10; exec "+testBinary(t)+" run --at-least 24h x -- true")
	shell.Dir, shell.Env = w.dir, w.env
	out, _ := shell.CombinedOutput()
	if got := shell.ProcessState.ExitCode(); got != CodeNotRunnable || !w.has("released") {
		t.Errorf("exit code %d, released = %v: %s", got, w.has("released"), out)
	}
}

func TestARunThatWouldWaitForItselfSaysSo(t *testing.T) {
	w := newWorld(t)
	self := testBinary(t)
	for _, c := range []struct {
		outer, inner string
		want         int
	}{
		{"run a b", "run a b", CodeUsage},
		{"run a b", "elect a b", CodeUsage},
		{"run a b", "hold a b", CodeUsage},
		{"run a b", "run -n a b", 0}, // this service grants it; a real one says busy
		{"run a b", "run a c", 0},
		{"run -s a b", "run -s a b", 0},
		{"run -s a b", "run a b", CodeUsage},
		{"run --permits 1/3 a b", "run --permits 2/3 a b", 0},
		{"run --permits 2/3 a b", "run --permits 2/3 a b", CodeUsage},
	} {
		outer := strings.Fields(strings.ReplaceAll(c.outer, "a b", "a%b"))
		inner := strings.ReplaceAll(strings.ReplaceAll(c.inner, "a b", "a%b"), "a c", "a%c")
		if !strings.HasPrefix(inner, "hold") {
			inner += " -- true"
		}
		_, stderr := w.run(c.want, append(outer, "--", "sh", "-c", self+" "+inner)...)
		if c.want == CodeUsage && !strings.Contains(stderr, "which waits for this one to end") {
			t.Errorf("%s in %s: stderr %q", c.inner, c.outer, stderr)
		}
	}
	// Processes that the command left running may request the lock: nothing waits for them.
	w.run(0, "run", "a", "--", "sh", "-c", "(while kill -0 ${LOCKSTEP_HELD%%:*}; do sleep 0.05; done; "+self+" run a -- touch later) >/dev/null 2>&1 &")
	w.eventually("the run that was left got the lock", func() bool { _, err := os.Stat(filepath.Join(w.dir, "later")); return err == nil })
}

func TestALeaderMayDrainLongerThanItsLeaseLasts(t *testing.T) {
	w := newWorld(t)
	p := w.start("elect", "--ttl", "2", "--kill-after", "0.2", "--drain", "1m", "x", "-c",
		`trap "sleep 3; echo drained > end; exit 0" TERM; echo up > up; while :; do sleep 0.01; done`)
	w.read("up")
	p.Process.Signal(syscall.SIGTERM)
	if got := p.code(); got != 0 || w.read("end")[0] != "drained" {
		t.Errorf("exit code %d: %s", got, p.err.String())
	}
	p = w.start("elect", "--ttl", "2", "--kill-after", "0.2", "--drain", "1m", "x", "-c", `trap "" TERM; echo up > up2; while :; do sleep 0.01; done`)
	w.read("up2")
	p.Process.Signal(syscall.SIGTERM)
	w.set("cut") // a lease that is not renewed cuts the drain short
	if got := p.code(); got != CodeLost {
		t.Errorf("exit code %d, want %d: %s", got, CodeLost, p.err.String())
	}
}

func TestAShellThatRunsNothingIsNoBusyLock(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "SHELL=/usr/sbin/nologin")
	_, stderr := w.run(CodeNotRunnable, "run", "x", "-c", "true")
	if !strings.Contains(stderr, "SHELL=") || w.has("granted") {
		t.Errorf("stderr %q, granted = %v", stderr, w.has("granted"))
	}
}

// inNamespace runs a shell line as root in new namespaces.
func (w *world) inNamespace(line string, flags ...string) string {
	w.t.Helper()
	if os.Getuid() != 0 {
		w.t.Skip("needs root")
	}
	cmd := exec.Command("unshare", append(flags, "sh", "-c", line)...)
	cmd.Dir, cmd.Env = w.dir, append(w.env, "LOCKSTEP="+testBinary(w.t))
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func TestAsProcess1RunAndElectReapOrphans(t *testing.T) {
	for _, command := range []string{"run", "elect"} {
		t.Run(command, func(t *testing.T) {
			w := newWorld(t)
			// Half of the orphans descend from the command; the other half are strangers that
			// process 1 inherits.
			orphans := `i=0; while [ $i -lt 20 ]; do sh -c "sleep 0.2 & exit" & i=$((i+1)); done; `
			out := w.inNamespace(`(sleep 0.5; `+orphans+`) & exec $LOCKSTEP `+command+` x -- sh -c '`+orphans+`wait; sleep 1.5; ps -eo stat= | grep -c Z; true'`,
				"--pid", "--fork", "--mount-proc", "--kill-child")
			if strings.TrimSpace(out) != "0" {
				t.Errorf("zombies: %s", out)
			}
		})
	}
}

func TestWithoutProcRunIsFoundByItsPath(t *testing.T) {
	w := newWorld(t)
	os.Mkdir(filepath.Join(w.dir, "bin"), 0o755) // not where it would be found without PATH
	os.Symlink(testBinary(t), filepath.Join(w.dir, "bin", "lockstep"))
	out := w.inNamespace(`umount -l /proc && PATH=$PWD/bin:$PATH && lockstep run x -- echo ran`, "--mount")
	if !strings.HasSuffix(out, "ran\n") { // the race detector needs /proc too, and says so
		t.Errorf("got %q", out)
	}
}
