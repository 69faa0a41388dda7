//go:build linux

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTheExitCodeIsThatOfTheCommand(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		want int
		args []string
	}{
		{0, []string{"run", "x", "--", "true"}},
		{7, []string{"run", "x", "--", "sh", "-c", "exit 7"}},
		{128 + 15, []string{"run", "x", "--", "sh", "-c", "kill -TERM $$"}},
		{128 + 9, []string{"run", "x", "--", "sh", "-c", "kill -KILL $$"}},
		{3, []string{"lock", "x", "-c", "exit 3"}},
		{CodeNotFound, []string{"run", "x", "--", "no-such-command"}},
		{CodeNotFound, []string{"run", "x", "--", "./no-such-file"}},
		{CodeNotRunnable, []string{"run", "x", "--", "/etc/passwd"}},
		{CodeNotRunnable, []string{"run", "x", "--", "/"}},
	} {
		w.run(c.want, c.args...)
	}
}

func TestABusyLockHasItsOwnExitCode(t *testing.T) {
	w := newWorld(t)
	w.set("busy")
	_, stderr := w.run(CodeBusy, "run", "-n", "x", "--", "true")
	oneLineOf(t, stderr)
	if !strings.Contains(stderr, "held by s1") {
		t.Errorf("stderr = %q, want the holder", stderr)
	}
	w.run(75, "run", "-w", "0.05", "-E", "75", "x", "--", "true")
	w.run(CodeBusy, "run", "-w", "20ms", "x", "--", "true")
	if _, stderr := w.run(0, "run", "-n", "-E", "0", "x", "--", "true"); stderr != "" {
		t.Errorf("with -E 0 a busy lock is no error, but stderr = %q", stderr)
	}
	if !w.has("closed") || w.has("granted") {
		t.Error("want a closed session and no grant")
	}
}

func TestAnUnreachableServiceIs69(t *testing.T) {
	w := newWorld(t)
	w.set("down")
	_, stderr := w.run(CodeUnavailable, "run", "x", "--", "true")
	oneLineOf(t, stderr)
}

func TestTheCommandSeesItsLock(t *testing.T) {
	w := newWorld(t)
	show := `echo $LOCKSTEP_LOCK $LOCKSTEP_TOKEN $LOCKSTEP_SESSION; env | grep -c ^LOCKSTEP_LOCK=`
	out, _ := w.run(0, "run", "a/b", "-c", show)
	if want := "a/b 42 session-1\n1\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	out, _ = w.run(0, "run", "a/b/c", "--", "/proc/self/exe", "version")
	if !strings.HasPrefix(out, "lockstep ") {
		t.Errorf("a tool under run took its variables for flags: %q", out)
	}
}

func TestRunInRunShowsTheInnerLock(t *testing.T) {
	w := newWorld(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, _ := w.run(5, "run", "outer", "--", self, "run", "in/ner", "-c", "echo $LOCKSTEP_LOCK $LOCKSTEP_TOKEN; exit 5")
	if want := "in/ner 42\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestStdinAndOtherFilesArePassedOn(t *testing.T) {
	w := newWorld(t)
	script := fmt.Sprintf(`echo hello | %s=1 /proc/%d/exe run y -- sh -c 'cat; echo three >&3' 3>three`, asProgram, os.Getpid())
	out, _ := w.run(0, "run", "x", "-c", script)
	if out != "hello\n" {
		t.Errorf("got %q", out)
	}
	if got := w.read("three"); !slices.Equal(got, []string{"three"}) {
		t.Errorf("file 3 got %q", got)
	}
}

func TestOthersSeeWhoHoldsTheLock(t *testing.T) {
	w := newWorld(t)
	w.run(0, "run", "--show-command", "--purpose", "month end", "x", "--", "sh", "-c", "true", "a\nb\x1b", strings.Repeat("é", 2000))
	text, err := os.ReadFile(filepath.Join(w.control, "metadata"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"host=", "pid=", "purpose=month end\n", `command=sh -c true a\nb\x1b éé`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("metadata %q: want %q in it", text, want)
		}
	}
}

func TestALockIsReleasedWhenTheCommandEnds(t *testing.T) {
	w := newWorld(t)
	w.run(0, "run", "x", "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $! > left")
	left := w.pids("left")[0]
	if !w.has("released") || !w.has("closed") {
		t.Error("want the lock released and the session closed")
	}
	if !runs(left) {
		t.Error("what the command left in the background is gone")
	}
}

func TestSignalsBeforeTheGrantEndTheToolAndLeaveNoTicket(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			w := newWorld(t)
			w.set("busy")
			p := w.start("run", "x", "--", "touch", "ran")
			w.eventually("queued", func() bool { return w.has("queued") })
			p.Process.Signal(syscall.SIGUSR1) // for the command, which is not running yet
			p.Process.Signal(sig)
			if got, want := p.code(), 128+int(sig); got != want {
				t.Errorf("exit code %d, want %d", got, want)
			}
			if w.has("queued") || !w.has("closed") {
				t.Error("want no ticket and a closed session")
			}
		})
	}
}

func TestSignalsArePassedOnToTheWholeGroup(t *testing.T) {
	w := newWorld(t)
	// The inner shell is a grandchild: it gets signals only through the group.
	inner := `trap "echo inner >> got" USR1; echo ready > inner; while :; do sleep 0.01; done`
	outer := `trap "echo usr1 >> got" USR1; trap "echo usr2 >> got" USR2; trap "echo term >> got; kill -KILL $inner; exit 9" TERM
sh -c '` + inner + `' & inner=$!
echo ready > outer; while :; do sleep 0.01; done`
	p := w.start("run", "x", "--", "sh", "-c", outer)
	w.read("inner")
	w.read("outer")
	p.Process.Signal(syscall.SIGUSR1)
	w.eventually("USR1 in both shells", func() bool {
		got := w.read("got")
		return slices.Contains(got, "inner") && slices.Contains(got, "usr1")
	})
	p.Process.Signal(syscall.SIGUSR2)
	w.eventually("USR2", func() bool { return slices.Contains(w.read("got"), "usr2") })
	p.Process.Signal(syscall.SIGTERM)
	if got := p.code(); got != 9 {
		t.Errorf("exit code %d, want that of the command, 9", got)
	}
	if got := w.read("got"); got[len(got)-1] != "term" {
		t.Errorf("got %q, want term at the end", got)
	}
}

func TestASecondInterruptEndsACommandThatIgnoresThem(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "--ttl", "3", "--kill-after", "0.2", "x", "--", "sh", "-c", `trap "" INT TERM; echo $$ > pid; while :; do sleep 0.01; done`)
	pid := w.pids("pid")
	p.Process.Signal(syscall.SIGINT)
	time.Sleep(100 * time.Millisecond)
	if !runs(pid[0]) {
		t.Fatal("one interrupt was enough")
	}
	p.Process.Signal(syscall.SIGINT)
	if got := p.code(); got != 128+9 {
		t.Errorf("exit code %d, want 137", got)
	}
	if !w.has("released") {
		t.Error("the lock was not released")
	}
}

func TestNohupIsHonoured(t *testing.T) {
	w := newWorld(t)
	script := fmt.Sprintf(`trap "" HUP; exec /proc/%d/exe run y -- sh -c 'echo $PPID > pid; kill -HUP $PPID; kill -HUP $$; sleep 0.1; echo survived > end'`, os.Getpid())
	w.run(0, "run", "x", "-c", script)
	if got := w.read("end"); got[0] != "survived" {
		t.Error("SIGHUP got through to the command")
	}
}

func TestTheArgumentsOfACommandAreShownToNobodyUnlessAskedFor(t *testing.T) {
	w := newWorld(t)
	for _, line := range [][]string{
		{"run", "x", "--", "sh", "-c", "true", "-phunter2"}, {"run", "x", "-c", "true -phunter2"}, {"elect", "x", "--", "sh", "-c", "true", "-phunter2"},
	} {
		w.run(0, line...)
		text, err := os.ReadFile(filepath.Join(w.control, "metadata"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "hunter2") || !strings.Contains(string(text), "command=") {
			t.Errorf("%q: others see %q, want the name of the command alone", line, text)
		}
	}
}

func TestACommandIsStoppedWhenItHasRunForTheLongestTimeAllowed(t *testing.T) {
	w := newWorld(t)
	_, stderr := w.run(128+15, "run", "--max-hold", "1", "x", "--", "sleep", "1000")
	if oneLineOf(t, stderr); !strings.Contains(stderr, "--max-hold") || !w.has("released") {
		t.Errorf("stderr %q, released %v", stderr, w.has("released"))
	}
	w.run(7, "run", "--max-hold", "20", "x", "--", "sh", "-c", "exit 7")
	w.run(0, "hold", "--max-hold", "1", "x")
	w.run(CodeUsage, "run", "--max-hold", "0.5", "x", "--", "true")
	w.run(CodeUsage, "hold", "--max-hold", "0", "x")
}

func TestTheTimeoutOfFlockIsTheWait(t *testing.T) {
	w := newWorld(t)
	w.set("busy")
	w.run(CodeBusy, "run", "--timeout", "0.05", "x", "--", "true")
	w.run(CodeUsage, "run", "--timeout", "1", "-w", "1", "x", "--", "true")
}
