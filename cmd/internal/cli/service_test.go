//go:build linux

package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// newService returns a world whose programs use a real service: one node of "lockstep dev" in a
// separate process.
func newService(t *testing.T) *world {
	t.Parallel()
	return makeService(t)
}

func makeService(t *testing.T) *world {
	w := makeWorld(t)
	w.env = slices.DeleteFunc(w.env, func(e string) bool { return strings.HasPrefix(e, controlDir) })
	dev := w.start("dev", "--nodes", "1", "--port", "0")
	w.eventually("the service is ready", func() bool { return strings.Contains(dev.out.String(), "\n") })
	line := strings.TrimSpace(dev.out.String())
	if !regexp.MustCompile(`^ready LOCKSTEP_ENDPOINTS=127\.0\.0\.1:\d+$`).MatchString(line) {
		t.Fatalf("dev printed %q", line)
	}
	w.env = append(w.env, strings.TrimPrefix(line, "ready "))
	t.Cleanup(func() {
		dev.Process.Signal(syscall.SIGTERM)
		if got := dev.code(); got != 0 {
			t.Errorf("dev: exit code %d after TERM; stderr: %s", got, dev.err.String())
		}
	})
	return w
}

// readJSON runs a read-only command with -o json and decodes its output.
func readJSON[T any](w *world, args ...string) T {
	w.t.Helper()
	out, _ := w.run(0, append(args, "-o", "json")...)
	var v T
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		w.t.Fatalf("%v: %v in %s", args, err, out)
	}
	return v
}

func TestRunsExcludeEachOther(t *testing.T) {
	w := newService(t)
	os.WriteFile(filepath.Join(w.dir, "f"), []byte("0\n"), 0o600)
	var runs []*process
	for range 12 {
		runs = append(runs, w.start("run", "counter", "--", "sh", "-c", "n=$(cat f); echo $((n+1)) > f; echo $LOCKSTEP_TOKEN >> tokens"))
	}
	for _, p := range runs {
		if got := p.code(); got != 0 {
			t.Errorf("exit code %d: %s", got, p.err.String())
		}
	}
	if got := w.read("f"); got[0] != "12" {
		t.Errorf("counter is %s, want 12", got[0])
	}
	tokens := w.read("tokens")
	if !slices.IsSorted(tokens) || len(slices.Compact(tokens)) != 12 {
		t.Errorf("tokens %v: want 12 that rise", tokens)
	}
}

func TestShowTellsHoldersAndWaitersInOrder(t *testing.T) {
	w := newService(t)
	holder := w.start("run", "--purpose", "month end", "team/job", "--", "sh", "-c", "echo $LOCKSTEP_TOKEN $LOCKSTEP_SESSION > up; until [ -e enough ]; do sleep 0.01; done")
	own := w.read("up")
	waiters := []*process{}
	for i := range 3 {
		waiters = append(waiters, w.start("run", "--purpose", fmt.Sprint("waiter ", i), "team/job", "--", "true"))
		w.eventually("queued", func() bool { return readJSON[lockReport](w, "show", "team/job").WaiterCount == uint64(i+1) })
	}
	l := readJSON[map[string]any](w, "show", "team/job")
	for _, key := range []string{"name", "mode", "holders", "waiters", "next_token"} {
		if _, ok := l[key]; !ok {
			t.Errorf("show has no %q", key)
		}
	}
	report := readJSON[lockReport](w, "show", "team/job")
	if len(report.Holders) != 1 || len(report.Waiters) != 3 || report.Mode != "exclusive" {
		t.Fatalf("got %+v", report)
	}
	h := report.Holders[0]
	if fmt.Sprint(h.Token) != own[0] || h.Session != own[1] || report.NextToken <= h.Token || time.Since(h.Since.Time) > time.Hour {
		t.Errorf("holder %+v, next token %d, the command has %v", h, report.NextToken, own)
	}
	for key, want := range map[string]string{"purpose": "month end", "pid": fmt.Sprint(holder.Process.Pid)} {
		if h.Metadata[key] != want {
			t.Errorf("metadata %q is %q, want %q", key, h.Metadata[key], want)
		}
	}
	for i, waiter := range report.Waiters {
		if want := fmt.Sprint("waiter ", i); waiter.Metadata["purpose"] != want {
			t.Errorf("waiter %d is %q", i, waiter.Metadata["purpose"])
		}
	}
	if out, _ := w.run(0, "show", "team/job"); !strings.Contains(out, "held, 3 waiting") || !strings.Contains(out, "month end") {
		t.Errorf("show prints %s", out)
	}
	if _, stderr := w.run(CodeBusy, "run", "-n", "team/job", "--", "true"); !strings.Contains(stderr, "month end") {
		t.Errorf("a busy error names no holder: %q", stderr)
	}
	waiters[1].Process.Signal(syscall.SIGTERM)
	if got := waiters[1].code(); got != 128+15 {
		t.Errorf("exit code %d of a waiter after TERM", got)
	}
	w.eventually("the ticket is gone", func() bool { return readJSON[lockReport](w, "show", "team/job").WaiterCount == 2 })
	os.WriteFile(filepath.Join(w.dir, "enough"), nil, 0o600)
	for _, p := range []*process{holder, waiters[0], waiters[2]} {
		if got := p.code(); got != 0 {
			t.Errorf("exit code %d: %s", got, p.err.String())
		}
	}
}

func TestListStatusAndHistory(t *testing.T) {
	w := newService(t)
	var holders []*process
	for _, name := range []string{"b/1", "b/2", "a/1"} {
		holders = append(holders, w.start("run", name, "--", "sh", "-c", "until [ -e enough ]; do sleep 0.01; done"))
	}
	names := func(args ...string) (names []string) {
		list := readJSON[struct{ Locks []lockReport }](w, append([]string{"ls"}, args...)...)
		for _, l := range list.Locks {
			if len(l.Holders) == 1 {
				names = append(names, l.Name)
			}
		}
		return names
	}
	w.eventually("three holders", func() bool { return len(names()) == 3 })
	for _, c := range []struct{ args, want string }{
		{"--page-size 1", "a/1 b/1 b/2"}, {"b/", "b/1 b/2"}, {"--limit 2 --page-size 2", "a/1 b/1"}, {"nothing", ""},
	} {
		if got := strings.Join(names(strings.Fields(c.args)...), " "); got != c.want {
			t.Errorf("ls %s: %s, want %s", c.args, got, c.want)
		}
	}
	for _, command := range []string{"ls", "watch"} {
		if _, errs := w.run(CodeUsage, command, "cafe\u0301"); !strings.Contains(errs, "NFC") {
			t.Errorf("%s with a prefix that is not in NFC says %q", command, errs)
		}
	}
	if out, _ := w.run(0, "ls"); strings.Count(out, "\n") != 4 {
		t.Errorf("ls prints %q", out)
	}
	s := readJSON[statusReport](w, "status")
	if s.Leader != "n1" || s.Node != "n1" || s.Term == 0 || s.AppliedIndex == 0 || s.Locks != 3 || len(s.Members) != 1 {
		t.Errorf("status %+v", s)
	}
	if m := s.Members[0]; m.Name != "n1" || m.Role != "leader" || m.Health != "ok" || m.AppliedIndex == nil || *m.AppliedIndex == 0 {
		t.Errorf("member %+v", m)
	}
	w.run(0, "status")
	os.WriteFile(filepath.Join(w.dir, "enough"), nil, 0o600)
	for _, p := range holders {
		p.code()
	}
	var kinds []string
	for _, e := range readJSON[historyReport](w, "history", "a/1").Events {
		kinds = append(kinds, e.Kind)
	}
	if want := []string{"granted", "released"}; !slices.Equal(kinds, want) {
		t.Errorf("history %v, want %v", kinds, want)
	}
	w.run(0, "history", "a/1")
	if out, _ := w.run(0, "show", "a/1"); !strings.HasPrefix(out, "a/1: free") {
		t.Errorf("show prints %q", out)
	}
}

func TestARevokedHolderIsStoppedBeforeTheNextOneStarts(t *testing.T) {
	w := newService(t)
	holder := w.start("run", "--kill-after", "0.3", "x", "--", "sh", "-c", family("echo term >> got"))
	pids := w.pids("pids")
	next := w.start("run", "x", "--", "sh", "-c", "for p in $(cat pids); do grep '^State' /proc/$p/status | grep -v '[ZX]'; done > alive; echo done >> alive")
	w.eventually("queued", func() bool { return readJSON[lockReport](w, "show", "x").WaiterCount == 1 })
	w.run(CodeBusy, "revoke", "x", "--token", "1", "--reason", "another grant")
	w.run(0, "revoke", "x", "--reason", "stuck", "--by", "alice")
	if got := holder.code(); got != CodeLost {
		t.Errorf("exit code %d, want %d", got, CodeLost)
	}
	if !strings.Contains(holder.err.String(), "alice") || !strings.Contains(holder.err.String(), "stuck") {
		t.Errorf("stderr %q: want who and why", holder.err.String())
	}
	if got := next.code(); got != 0 {
		t.Errorf("the next holder: exit code %d", got)
	}
	if got := w.read("alive"); !slices.Equal(got, []string{"done"}) {
		t.Errorf("the next holder saw the old one alive: %v", got)
	}
	w.gone(pids...)
	w.run(CodeBusy, "revoke", "x", "--reason", "nobody is there")
}

// When run is killed, its command is gone before the next holder starts.
func TestAKilledHolderIsFollowedAfterItsTTL(t *testing.T) {
	w := newService(t)
	holder := w.start("run", "--ttl", "3", "x", "--", "sh", "-c", family(""))
	pids := w.pids("pids")
	next := w.start("run", "x", "--", "sh", "-c", "for p in $(cat pids); do grep '^State' /proc/$p/status | grep -v '[ZX]'; done > alive; echo done >> alive")
	w.eventually("queued", func() bool { return readJSON[lockReport](w, "show", "x").WaiterCount == 1 })
	holder.Process.Kill()
	w.gone(pids...)
	if got := next.code(); got != 0 {
		t.Errorf("exit code %d", got)
	}
	if got := w.read("alive"); !slices.Equal(got, []string{"done"}) {
		t.Errorf("the next holder saw the old one alive: %v", got)
	}
}

func TestAServerServesUntilTerm(t *testing.T) {
	w := newWorld(t)
	ports := freePorts(t, 3)
	p := w.start("server", "--name", "n1", "--data-dir", "data", "--listen", ports[0], "--peer-listen", ports[1], "--http-listen", ports[2], "--health-listen", "127.0.0.1:0",
		"--initial-cluster", "n1="+ports[1], "--log-format", "json")
	w.env = slices.DeleteFunc(append(w.env, "LOCKSTEP_ENDPOINTS="+ports[0]), func(e string) bool { return strings.HasPrefix(e, controlDir) })
	w.run(0, "run", "x", "--", "true")
	for _, args := range []string{"status", "ls", "run x -- true"} {
		_, errs := w.run(CodeUnavailable, append(strings.Fields("--endpoints "+ports[2]+" --connect-timeout 1"), strings.Fields(args)...)...)
		if !strings.Contains(errs, ports[2]+" is the HTTP port of a node: clients use its client port") {
			t.Errorf("%s on the wrong port: %s", args, errs)
		}
		_, errs = w.run(CodeUnavailable, append(strings.Fields("--endpoints "+ports[1]+" --connect-timeout 1"), strings.Fields(args)...)...)
		if !strings.Contains(errs, ports[1]+" is not the client port of a node, perhaps its peer port (7401 by default)") {
			t.Errorf("%s on the peer port: %s", args, errs)
		}
	}
	second := w.start("server", "--name", "n1", "--data-dir", "data", "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--log-level", "error")
	if got := second.code(); got != CodeInternal {
		t.Errorf("a second server on the directory: exit code %d, want %d", got, CodeInternal)
	}
	if lines := strings.Split(strings.TrimSpace(second.err.String()), "\n"); !strings.HasPrefix(lines[len(lines)-1], "lockstep: server: ") {
		t.Errorf("its last line is %q", lines[len(lines)-1])
	} else if want := fmt.Sprintf("is used by another process, pid %d", p.Process.Pid); !strings.Contains(lines[len(lines)-1], want) {
		t.Errorf("its last line is %q, want in it %q", lines[len(lines)-1], want)
	}
	p.Process.Signal(syscall.SIGTERM)
	if got := p.code(); got != 0 {
		t.Errorf("exit code %d after TERM", got)
	}
	for log := bufio.NewScanner(strings.NewReader(p.err.String())); log.Scan(); {
		if !json.Valid(log.Bytes()) {
			t.Errorf("a line of the log is no JSON: %s", log.Text())
		}
	}
	w.run(CodeUnavailable, "status", "--connect-timeout", "0.2")
	w.run(CodeUnavailable, "run", "--connect-timeout", "0.2", "x", "--", "true")
}

func TestAServerWithFewFilesSaysWhatToDo(t *testing.T) {
	w := newWorld(t)
	for _, args := range []string{"server --name n1 --data-dir data --initial-cluster n1=127.0.0.1:7401", "dev --port 0"} {
		shell := exec.Command("sh", "-c", "ulimit -n 1000; exec "+testBinary(t)+" "+args)
		shell.Dir, shell.Env = w.dir, w.env
		out, _ := shell.CombinedOutput()
		if got := shell.ProcessState.ExitCode(); got != CodeUsage || !strings.Contains(string(out), "can open 1000 files, but needs at least 1024") ||
			!strings.Contains(string(out), "ulimit -n") || strings.Contains(string(out), "--descriptors") {
			t.Errorf("%s: exit code %d: %s", args, got, out)
		}
	}
	if _, errs := w.run(CodeUsage, "server", "--name", "n1", "--data-dir", "data", "--initial-cluster", "n1=127.0.0.1:7401", "--connections", "60000000"); !strings.Contains(errs, "--connections: is 60000000") {
		t.Errorf("%s", errs)
	}
}

// freePorts returns addresses on which nothing listens.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	addresses, err := testbed.Addresses(n)
	if err != nil {
		t.Fatal(err)
	}
	return addresses
}

func TestSeveralLocksAreTakenAllAtOnceOrNotAtAll(t *testing.T) {
	w := newService(t)
	both := w.start("hold", "--also", "a/2", "--also", "a/3", "a/1")
	w.eventually("held", func() bool { return strings.Contains(both.out.String(), "held") })
	for _, name := range []string{"a/1", "a/2", "a/3"} {
		if l := readJSON[lockReport](w, "show", name); len(l.Holders) != 1 || len(l.Holders[0].Names) != 3 {
			t.Errorf("%s: %+v", name, l.Holders)
		}
	}
	w.run(CodeBusy, "run", "-n", "--also", "a/0", "a/3", "--", "true")
	w.run(0, "run", "-n", "a/0", "--", "true")
	both.Process.Signal(syscall.SIGTERM)
	both.code()
	w.run(0, "run", "-n", "--also", "a/0", "a/3", "--", "true")
	for _, args := range [][]string{{"--also", "b/1", "a/1"}, {"--also", "a/1", "a/1"}, {"--also", "a//", "a/1"}, {"-s", "--also", "a/2", "a/1"}, {"--lock-delay", "2h", "a/1"}} {
		w.run(CodeUsage, append(append([]string{"run"}, args...), "--", "true")...)
	}
	if _, stderr := w.run(CodeUsage, "run", "--also", "a/2", "a/1", "--", testBinary(t), "run", "a/2", "--", "true"); !strings.Contains(stderr, "a/2 is held by the enclosing lockstep") {
		t.Errorf("stderr %q", stderr)
	}
}

func TestALockStaysClosedForItsDelayAfterTheLeaseOfADeadHolder(t *testing.T) {
	w := newService(t)
	w.run(0, "acquire", "--ttl", "1", "--lock-delay", "1h", "x")
	w.run(0, "acquire", "--ttl", "1", "y")
	w.run(0, "run", "-w", "20", "y", "--", "true") // its lease has ended, and so has that of x, at about the same time
	w.run(CodeBusy, "run", "-w", "1", "x", "--", "true")
}

func TestAnInterruptedDemonstrationBreaksNoPromise(t *testing.T) {
	w := makeWorld(t)
	p := w.start("demo")
	w.eventually("it has begun", func() bool { return strings.Contains(p.out.String(), "1. ") })
	p.Process.Signal(syscall.SIGINT)
	if got := p.code(); got != 128+2 {
		t.Errorf("exit code %d: %s", got, p.err.String())
	}
	if out := p.out.String(); strings.Contains(out, "FAILED") || !strings.Contains(out, "Interrupted.") || !strings.Contains(p.err.String(), "interrupted") {
		t.Errorf("says %q and %q", out, p.err.String())
	}
}
