//go:build linux

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// with runs lockstep with one more variable, and checks its exit code.
func (w *world) with(entry string, want int, args ...string) (stdout, stderr string) {
	w.t.Helper()
	more := *w
	more.env = append(append([]string{}, w.env...), entry)
	return more.run(want, args...)
}

func TestALockIsHeldAcrossTheCommandsOfAScript(t *testing.T) {
	w := newService(t)
	handle, _ := w.run(0, "acquire", "--ttl", "12", "--purpose", "month end", "team/job")
	if strings.Count(handle, "\n") != 1 {
		t.Fatalf("acquire printed %q", handle)
	}
	handle = "LOCKSTEP_HANDLE=" + strings.TrimSpace(handle)
	first := readJSON[lockReport](w, "show", "team/job").Holders[0]
	for _, key := range []string{"purpose", "host", "pid"} {
		if first.Metadata[key] == "" {
			t.Errorf("the holder has no %s: %v", key, first.Metadata)
		}
	}
	if first.Metadata["pid"] != fmt.Sprint(os.Getpid()) {
		t.Errorf("the holder is %s, want the process that called acquire, %d", first.Metadata["pid"], os.Getpid())
	}
	for end := time.Now().Add(14 * time.Second); time.Now().Before(end); time.Sleep(time.Second) { // longer than the TTL
		out, _ := w.with(handle, 0, "renew", "-o", "json")
		var r grantReport
		if err := json.Unmarshal([]byte(out), &r); err != nil || r.Token != first.Token || r.Lock != "team/job" || r.Session != first.Session || r.RemainingMS < 1 {
			t.Fatalf("renew: %s, %v; the holder is %+v", out, err, first)
		}
	}
	w.run(CodeBusy, "acquire", "-n", "team/job")
	w.run(9, "acquire", "-n", "-E", "9", "team/job")
	w.with(handle, 0, "release")
	if got := readJSON[lockReport](w, "show", "team/job"); len(got.Holders) != 0 {
		t.Errorf("held after release: %+v", got.Holders)
	}
	for verb, advice := range map[string]string{"renew": "stop all work", "release": "nothing to release"} {
		if _, stderr := w.with(handle, CodeLost, verb); !strings.Contains(stderr, advice) {
			t.Errorf("%s of a released lock: %q", verb, stderr)
		}
	}
}

func TestAHandleInAFileIsSecret(t *testing.T) {
	w := newService(t)
	path := filepath.Join(w.dir, "job.handle")
	token, _ := w.run(0, "acquire", "--handle-file", "job.handle", "x")
	info, err := os.Stat(path)
	if err != nil || info.Mode() != fs.FileMode(0o600) {
		t.Fatalf("the file: %v, %v", info.Mode(), err)
	}
	if got := readJSON[lockReport](w, "show", "x").Holders[0].Token; strings.TrimSpace(token) != fmt.Sprint(got) {
		t.Errorf("acquire printed %q, the holder's token is %d", token, got)
	}
	w.with("LOCKSTEP_HANDLE_FILE=job.handle", 0, "renew")
	os.Chmod(path, 0o640)
	if _, stderr := w.run(CodeUsage, "renew", "--handle-file", "job.handle"); !strings.Contains(stderr, "chmod 600") {
		t.Errorf("a file that others can read: %q", stderr)
	}
	os.Chmod(path, 0o600)
	w.run(0, "release", "--handle-file", "job.handle")
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
	w.run(CodeUsage, "acquire", "--handle-file", "no/such/folder/h", "x")
	if got := readJSON[lockReport](w, "show", "x"); len(got.Holders) != 0 {
		t.Error("a lock was taken whose handle has no place")
	}
	left, _ := filepath.Glob(filepath.Join(w.dir, ".handle-*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestADetachedLockEndsWithItsLeaseOrByRevocation(t *testing.T) {
	w := newService(t)
	expired, _ := w.run(0, "acquire", "--ttl", "1", "x")
	w.run(0, "run", "-w", "10", "x", "--", "true")
	w.with("LOCKSTEP_HANDLE="+expired, CodeLost, "renew")
	taken, _ := w.run(0, "acquire", "--ttl", "60", "x")
	w.run(0, "revoke", "x", "--reason", "stuck", "--by", "alice", "--now")
	if _, stderr := w.with("LOCKSTEP_HANDLE="+taken, CodeLost, "renew"); !strings.Contains(stderr, "alice") || !strings.Contains(stderr, "stuck") {
		t.Errorf("stderr %q: want who and why", stderr)
	}
}

func TestAHoldLastsUntilItIsToldToEnd(t *testing.T) {
	w := newService(t)
	held := func(p *process) grantReport {
		t.Helper()
		w.eventually("held", func() bool { return strings.Contains(p.out.String(), "\n") })
		var r grantReport
		if err := json.Unmarshal([]byte(p.out.String()), &r); err != nil || r.Lock != "x" {
			t.Fatalf("hold printed %q, %v; %s", p.out.String(), err, p.err.String())
		}
		return r
	}
	first := w.start("hold", "--ttl", "8", "-o", "json", "x")
	report := held(first)
	second := w.start("hold", "--ttl", "5", "x", "-o", "json", "--end-with", "stdin")
	time.Sleep(9 * time.Second) // longer than the TTL
	if got := readJSON[lockReport](w, "show", "x").Holders; len(got) != 1 || got[0].Token != report.Token || got[0].Session != report.Session {
		t.Errorf("holder %+v, hold printed %+v", got, report)
	}
	w.run(CodeBusy, "hold", "-n", "x")
	first.Process.Signal(syscall.SIGTERM)
	if got := first.code(); got != 0 {
		t.Errorf("exit code %d after TERM: %s", got, first.err.String())
	}
	second.Process.Kill()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	third := w.startWith(in, "hold", "x", "-o", "json", "--end-with", "stdin", "-w", "15")
	in.Close()
	held(third)
	out.Close()
	if got := third.code(); got != 0 {
		t.Errorf("exit code %d when stdin is closed: %s", got, third.err.String())
	}
	fourth := w.start("hold", "x", "-o", "json")
	held(fourth)
	w.run(0, "revoke", "x", "--reason", "stuck", "--by", "alice")
	if got := fourth.code(); got != CodeLost || !strings.Contains(fourth.err.String(), "alice") {
		t.Errorf("exit code %d when revoked: %s", got, fourth.err.String())
	}
}

func TestSessionsAreListedInPages(t *testing.T) {
	w := newService(t)
	for i := range 3 {
		w.run(0, "acquire", "--purpose", fmt.Sprint("job ", i), fmt.Sprint("x/", i))
	}
	type list struct{ Sessions []sessionReport }
	for args, want := range map[string]int{"": 3, "--page-size 1": 3, "--page-size 2 --limit 2": 2, "--limit 1": 1} {
		got := readJSON[list](w, append([]string{"sessions"}, strings.Fields(args)...)...).Sessions
		if len(got) != want {
			t.Errorf("sessions %s: %d, want %d", args, len(got), want)
		}
		for _, s := range got {
			if s.Holding != 1 || s.Waiting != 0 || s.TTLMS != 60_000 || s.ExpiresInMS < 1 || s.ExpiresInMS > 61_000 || s.Metadata["host"] == "" {
				t.Errorf("session %+v", s)
			}
		}
	}
	if out, _ := w.run(0, "sessions"); strings.Count(out, "\n") != 4 {
		t.Errorf("sessions prints %q", out)
	}
}

func TestAWatchTellsWhatHappensInOrder(t *testing.T) {
	w := newService(t)
	w.run(0, "run", "a/1", "--", "true")
	w.run(0, "run", "b/1", "--", "true")
	watch := w.start("watch", "a/", "--after", "1", "-o", "json")
	told := func() (events []watchedEvent) {
		for line := range strings.Lines(watch.out.String()) {
			var e watchedEvent
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			events = append(events, e)
		}
		return events
	}
	w.eventually("the past", func() bool { return len(told()) == 1 })
	w.run(0, "run", "a/2", "--", "true")
	w.eventually("the present", func() bool { return len(told()) == 3 })
	var got []string
	for _, e := range told() {
		got = append(got, fmt.Sprint(e.Number, " ", e.Kind, " ", e.Name))
	}
	if want := "2 released a/1,5 granted a/2,6 released a/2"; strings.Join(got, ",") != want {
		t.Errorf("watched %v, want %s", got, want)
	}
	if out, _ := w.run(0, "watch", "--after", "2", "--limit", "3"); strings.Count(out, "\n") != 3 || !strings.Contains(out, "granted   b/1 token") {
		t.Errorf("watch prints %q", out)
	}
}

func TestDevEndsInGoodOrderWhenItsTerminalIsGone(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "TMPDIR="+w.dir)
	dev := w.start("dev", "--nodes", "1", "--port", "0")
	w.eventually("ready", func() bool { return strings.Contains(dev.out.String(), "\n") })
	dev.Process.Signal(syscall.SIGHUP)
	if got := dev.code(); got != 0 {
		t.Errorf("exit code %d: %s", got, dev.err.String())
	}
	if left, _ := filepath.Glob(filepath.Join(w.dir, "lockstep-dev-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTheHistoryTellsWhoHeldForHowLongAndWhyItEnded(t *testing.T) {
	var out, errs strings.Builder
	a := &App{Out: &out, Err: &errs}
	begin := time.Date(2026, 3, 1, 23, 59, 58, 0, time.UTC)
	err := a.showHistory(historyReport{Name: "x", Events: []eventReport{
		{Kind: "granted", Session: "0000000000040001abcd", Seq: 1, Token: 7, Time: instant{begin}, Metadata: map[string]string{"host": "h1", "purpose": "month\x1bend"}},
		{Kind: "revoked", Session: "0000000000040001abcd", Seq: 1, Token: 7, Time: instant{begin.Add(90 * time.Second)}, By: "alice", Reason: "stuck"},
	}}, textOutput)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2026-03-01T23:59:58.000Z", "2026-03-02T00:01:28.000Z  revoked", "1m30s", "0000000000040001 ", `host h1, purpose "month\x1bend"`, "by alice: stuck"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if !strings.Contains(errs.String(), "--limit") {
		t.Errorf("stderr %q", errs.String())
	}
}

func TestParallelRenewalsTakeTurns(t *testing.T) {
	w := newService(t)
	handle, _ := w.run(0, "acquire", "x")
	w.env = append(w.env, "LOCKSTEP_HANDLE="+strings.TrimSpace(handle))
	for round := range 10 {
		var renewals []*process
		for range 6 {
			renewals = append(renewals, w.start("renew"))
		}
		for _, p := range renewals {
			if got := p.code(); got != 0 {
				t.Errorf("round %d: exit code %d: %s", round, got, p.err.String())
			}
		}
	}
	w.run(0, "release")
}

func TestAReleaseBesideARenewalGivesTheLockBack(t *testing.T) {
	w := newService(t)
	for round := range 20 {
		handle, _ := w.run(0, "acquire", "-n", "x")
		both := *w
		both.env = append(append([]string{}, w.env...), "LOCKSTEP_HANDLE="+strings.TrimSpace(handle))
		renewal, release := both.start("renew"), both.start("release")
		if got := release.code(); got != 0 {
			t.Errorf("round %d: release: exit code %d: %s", round, got, release.err.String())
		}
		if got := renewal.code(); got != 0 && got != CodeLost { // it came after the release
			t.Errorf("round %d: renew: exit code %d: %s", round, got, renewal.err.String())
		}
	}
}

func TestTurnsAreTakenUntilTheLockItselfIsLost(t *testing.T) {
	superseded := &lockstep.LossError{Reason: lockstep.RecordMissing, Detail: "another process has it"}
	unknown := &lockstep.LossError{Reason: lockstep.RecordMissing, Detail: "no such session"}
	revoked := &lockstep.LossError{Reason: lockstep.Revoked}
	for name, c := range map[string]struct {
		attach, use []error
		want        error
		turns       int
	}{
		"at once":              {[]error{nil}, []error{nil}, nil, 1},
		"after two others":     {[]error{nil, nil, nil}, []error{superseded, superseded, nil}, nil, 3},
		"revoked meanwhile":    {[]error{nil, revoked}, []error{superseded}, revoked, 2},
		"gone meanwhile":       {[]error{nil, unknown}, []error{superseded}, goneMeanwhile{superseded}, 2},
		"gone before":          {[]error{unknown}, nil, unknown, 1},
		"revoked":              {[]error{nil}, []error{revoked}, revoked, 1},
		"out of reach":         {[]error{nil, lockstep.ErrUnavailable}, []error{superseded}, lockstep.ErrUnavailable, 2},
		"others come all time": {make([]error, maxTurns), slices.Repeat([]error{superseded}, maxTurns), superseded, maxTurns},
	} {
		turns := 0
		err := takeTurns(func() (lockstep.Lock, error) { turns++; return nil, c.attach[turns-1] },
			func(lockstep.Lock) error { return c.use[turns-1] })
		if err != c.want || turns != c.turns {
			t.Errorf("%s: %v after %d turns, want %v after %d", name, err, turns, c.want, c.turns)
		}
	}
}

func TestAHandleFileIsNotReplacedInSilence(t *testing.T) {
	w := newService(t)
	w.run(0, "acquire", "--handle-file", "h", "a")
	if _, stderr := w.run(CodeUsage, "acquire", "--handle-file", "h", "b"); !strings.Contains(stderr, "release") || !strings.Contains(stderr, "--force") {
		t.Errorf("stderr %q does not say what to do", stderr)
	}
	if got := readJSON[lockReport](w, "show", "b"); len(got.Holders) != 0 {
		t.Error("b is held, and its handle is nowhere")
	}
	w.run(0, "release", "--handle-file", "h") // still the handle of a
	if got := readJSON[lockReport](w, "show", "a"); len(got.Holders) != 0 {
		t.Error("a is still held")
	}
	w.run(0, "acquire", "--ttl", "1", "--handle-file", "h", "a")
	w.run(0, "acquire", "--force", "--handle-file", "h", "b")
	w.run(0, "release", "--handle-file", "h")
	w.run(0, "acquire", "--ttl", "1", "--handle-file", "h", "b")
	w.run(0, "run", "-w", "10", "b", "--", "true")
	w.run(CodeLost, "release", "--handle-file", "h")
	w.run(0, "acquire", "--handle-file", "h", "b") // the handle of a lost lock does not get in the way
}

func TestAHandleFileOfALockThatWasTakenBackIsRemoved(t *testing.T) {
	w := newService(t)
	shell := exec.Command("sh", "-c", testBinary(t)+" acquire --handle-file h x > /dev/full")
	shell.Dir, shell.Env = w.dir, w.env
	if out, err := shell.CombinedOutput(); err == nil {
		t.Errorf("exit code 0 although the token was not printed: %s", out)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "h")); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
	if got := readJSON[lockReport](w, "show", "x"); len(got.Holders) != 0 {
		t.Error("the lock is still held")
	}
	w.run(0, "acquire", "--handle-file", "h", "x")
}

func TestAHandleFileThatComesMeanwhileStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h")
	f, err := newHandleFile(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.drop()
	os.WriteFile(path, []byte("another"), 0o600)
	if err := f.write("mine"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("err %v", err)
	}
	f.withdraw() // not ours
	if got, _ := os.ReadFile(path); string(got) != "another" {
		t.Errorf("the file has %q", got)
	}
}

// TestThePrintedRecipeWorksUnderTheLockOnly runs the scripts in acquire --help and docs/cli.md with
// the lock free and busy.
func TestThePrintedRecipeWorksUnderTheLockOnly(t *testing.T) {
	w := newService(t)
	help, _ := w.run(0, "acquire", "--help")
	page, err := os.ReadFile("../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## acquire, renew, release")
	for name, text := range map[string]string{"help": help, "docs/cli.md": section} {
		_, recipe, found := strings.Cut(text, "LOCKSTEP_HANDLE=$(")
		recipe, _, ended := strings.Cut(recipe, "lockstep release")
		if !found || !ended {
			t.Fatalf("%s: no recipe", name)
		}
		recipe = "LOCKSTEP_HANDLE=$(" + strings.ReplaceAll(recipe, "lockstep acquire", "lockstep acquire -n") + "lockstep release\n"
		for _, part := range []string{"first-half", "second-half"} {
			os.WriteFile(filepath.Join(w.dir, part), []byte("#!/bin/sh\necho $0 >> worked\n"), 0o700)
		}
		for _, shell := range []string{"sh", "bash"} {
			w.recipe(shell, recipe, 0, 2)
			holder := w.start("hold", "billing/nightly")
			w.eventually("held", func() bool { return strings.Contains(holder.out.String(), "\n") })
			w.recipe(shell, recipe, CodeBusy, 0)
			holder.Process.Signal(syscall.SIGTERM)
			holder.code()
		}
	}
}

// recipe runs a script and checks its exit code and how many parts of its work were done.
func (w *world) recipe(shell, text string, want, parts int) {
	w.t.Helper()
	os.Remove(filepath.Join(w.dir, "worked"))
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(shell, "-c", `lockstep() { "$SELF" "$@"; }`+"\n"+text)
	cmd.Dir, cmd.Env = w.dir, append(append([]string{}, w.env...), "SELF="+self)
	out, _ := cmd.CombinedOutput()
	worked, _ := os.ReadFile(filepath.Join(w.dir, "worked"))
	if got := cmd.ProcessState.ExitCode(); got != want || strings.Count(string(worked), "\n") != parts {
		w.t.Errorf("%s: exit code %d, want %d; worked %q, want %d parts; it said %s", shell, got, want, worked, parts, out)
	}
}
