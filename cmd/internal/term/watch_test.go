//go:build unix

package term

import (
	"os"
	"os/exec"
	"syscall"
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

func TestAGuardianIsDueAtItsDeadlineOnceItKnowsItsGroup(t *testing.T) {
	const s = time.Second
	var w guardian
	if w.due(100 * s) {
		t.Error("due before anything is known")
	}
	w.take(message{watchDeadline, int64(10 * s)})
	if w.due(100*s) || w.armed() {
		t.Error("due without a group")
	}
	w.take(message{watchGroup, 1})
	if w.armed() {
		t.Error("armed against everybody")
	}
	w.take(message{watchGroup, 4711})
	if w.due(10*s-1) || !w.due(10*s) {
		t.Error("want it due at 10 s and not before")
	}
	if got := w.sleep(10*s - 7*time.Millisecond); got != 7*time.Millisecond {
		t.Errorf("sleeps %v, want 7 ms", got)
	}
	if got := w.sleep(5 * s); got != watchLook {
		t.Errorf("sleeps %v, want %v", got, watchLook)
	}
	w.take(message{watchDeadline, int64(20 * s)})
	if w.due(10 * s) {
		t.Error("due although the deadline has moved")
	}
	if w.take(message{kind: watchNoMore}) {
		t.Error("goes on although it was told not to")
	}
}

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	for _, m := range []message{{watchGroup, 4711}, {watchDeadline, 1<<62 + 1}, {watchNoMore, 0}, {watchDeadline, -1}} {
		b := m.encode()
		if len(b) != messageSize || decodeMessage(b) != m {
			t.Errorf("%v: % x comes back as %v", m, b, decodeMessage(b))
		}
	}
}

// sleeper starts a process in a group of its own.
func sleeper(t *testing.T) Group {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); cmd.Wait() }()
	t.Cleanup(func() { cmd.Process.Kill(); <-ended })
	return Group(cmd.Process.Pid)
}

func gone(g Group) bool {
	for range 5000 {
		if !g.Exists() {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

func TestAWatcherKillsAtTheDeadline(t *testing.T) {
	g := sleeper(t)
	w, err := StartWatcher(g, Now()+300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Kill()
	if err := w.Feed(Now() + 400*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if !gone(g) {
		t.Error("the group outlived its deadline")
	}
	<-w.Done()
}

func TestAWatcherKillsWhenTheFeedEnds(t *testing.T) {
	g := sleeper(t)
	w, err := StartWatcher(g, Now()+time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	w.feed.Close()
	if !gone(g) {
		t.Error("the group outlived the parent of its watcher")
	}
	<-w.Done()
}

func TestAWatcherThatStandsDownOrIsKilledDoesNoHarm(t *testing.T) {
	g := sleeper(t)
	for _, end := range []func(*Watcher){(*Watcher).StandDown, (*Watcher).Kill} {
		w, err := StartWatcher(g, Now()+time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		end(w)
		end(w) // once more is nothing
	}
	time.Sleep(20 * time.Millisecond)
	if !g.Exists() {
		t.Error("the group is gone")
	}
	none := &Watcher{}
	none.StandDown()
	none.Kill()
	if err := none.Feed(Now()); err != nil {
		t.Errorf("feeding no watcher: %v", err)
	}
}

// A frozen watcher cannot answer; it is ended all the same.
func TestAFrozenWatcherStandsDownToo(t *testing.T) {
	g := sleeper(t)
	w, err := StartWatcher(g, Now()+time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	w.command.Process.Signal(unix.SIGSTOP)
	w.StandDown()
	if !g.Exists() {
		t.Error("the group is gone")
	}
}

func TestAChildWaitsForGo(t *testing.T) {
	path := t.TempDir() + "/ran"
	c, err := StartChild(Command{Path: "/bin/sh", Args: []string{"sh", "-c", `echo "$WORD" > ` + path + `; kill -STOP $$; exit 3`}, Env: []string{"WORD=given"}})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if _, err := os.Stat(path); err == nil {
		t.Error("the command ran before Go")
	}
	if err := c.Go(); err != nil {
		t.Fatal(err)
	}
	if change, err := c.Wait(); err != nil || change.Stopped != unix.SIGSTOP {
		t.Fatalf("change %+v, %v, want a stop", change, err)
	}
	if text, _ := os.ReadFile(path); string(text) != "given\n" {
		t.Errorf("the command saw %q", text)
	}
	c.Group().Signal(unix.SIGCONT)
	if change, err := c.Wait(); err != nil || !change.Ended() {
		t.Fatalf("change %+v, %v, want the end", change, err)
	}
	if status, err := c.Reap(); err != nil || status.Code() != 3 || status.Signaled() {
		t.Errorf("code %d, %v, want 3", status.Code(), err)
	}
	if err := c.Group().Signal(unix.SIGTERM); err != nil {
		t.Errorf("a signal to a group that is gone: %v", err)
	}
}

func TestAChildWhoseParentGivesUpEnds(t *testing.T) {
	c, err := StartChild(Command{Path: "/bin/true", Args: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	c.goOn.Close()
	if _, err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if status, _ := c.Reap(); status.Code() != codeCannotExecute {
		t.Errorf("code %d, want %d", status.Code(), codeCannotExecute)
	}
}

func TestAScriptWithoutItsFirstLineRunsInAShell(t *testing.T) {
	path := t.TempDir() + "/script"
	if err := os.WriteFile(path, []byte("exit $1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := StartChild(Command{Path: path, Args: []string{"script", "5"}})
	if err != nil {
		t.Fatal(err)
	}
	c.Go()
	c.Wait()
	if status, _ := c.Reap(); status.Code() != 5 {
		t.Errorf("code %d, want 5", status.Code())
	}
}

func TestASignalToEverybodyPanics(t *testing.T) {
	for _, g := range []Group{-1, 0, 1} {
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
