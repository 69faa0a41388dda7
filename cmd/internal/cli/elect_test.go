//go:build linux

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// reign returns a shell line that records each start of a leader with its token, and leads until
// the file NAME.enough exists.
func reign(name string) string {
	return `grep SigIgn /proc/self/status | cut -f 2 >> ` + name + `.masks; echo $LOCKSTEP_TOKEN >> ` + name + `.terms; echo $$ >> ` + name + `.pids; until [ -e ` + name + `.enough ]; do sleep 0.01; done`
}

// aliveOf returns a shell line that records the state of the first leader's process unless it is
// gone or a zombie.
func aliveOf(name string) string {
	return `grep -s '^State' /proc/$(head -n 1 ` + name + `.pids)/status | grep -v '[ZX] (' > alive; `
}

// wasGone checks what aliveOf recorded.
func (w *world) wasGone() {
	w.t.Helper()
	if text, err := os.ReadFile(filepath.Join(w.dir, "alive")); err != nil || len(text) > 0 {
		w.t.Errorf("the old leader's command was alive when the new one's started: %q, %v", text, err)
	}
}

// enough lets a leader's command end.
func (w *world) enough(name string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name+".enough"), nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// terms waits for the nth start of a leader and returns all tokens.
func (w *world) terms(name string, n int) (tokens []string) {
	w.t.Helper()
	w.eventually("the leadership of "+name, func() bool {
		text, _ := os.ReadFile(filepath.Join(w.dir, name+".terms"))
		tokens = strings.Fields(string(text))
		return len(tokens) >= n
	})
	return tokens
}

// leaders returns the lines of an observer so far.
func leaders(t *testing.T, p *process) (all []leaderReport) {
	t.Helper()
	for d := json.NewDecoder(strings.NewReader(p.out.String())); d.More(); {
		var l leaderReport
		if err := d.Decode(&l); err != nil {
			return all // an incomplete line
		}
		all = append(all, l)
	}
	return all
}

func TestElectEndsAsItsCommandDoes(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		want int
		args []string
	}{
		{0, []string{"elect", "x", "--", "true"}},
		{7, []string{"elect", "x", "--", "sh", "-c", "exit 7"}},
		{3, []string{"elect", "x", "-c", "exit 3"}},
		{128 + 9, []string{"elect", "x", "-c", "kill -KILL $$"}},
		{CodeNotFound, []string{"elect", "x", "--", "no-such-command"}},
		{CodeUsage, []string{"elect", "x"}},
		{CodeUsage, []string{"elect", "x", "true"}},
		{CodeUsage, []string{"elect", "--identity", strings.Repeat("i", 257), "x", "--", "true"}},
		{CodeUsage, []string{"elect", "--identity", "a\nb", "x", "--", "true"}},
		{CodeUsage, []string{"elect", "--ttl", "3", "--kill-after", "2", "x", "--", "true"}},
		{CodeUsage, []string{"elect", "--observe", "x", "--", "true"}},
		{CodeUsage, []string{"elect", "--observe", "x"}}, // this backend cannot watch
	} {
		w.run(c.want, c.args...)
	}
	if !w.has("released") || !w.has("closed") {
		t.Error("want the lock released and the session closed")
	}
}

func TestTheNextCandidateLeadsWhenTheLeaderIsKilled(t *testing.T) {
	w := newService(t)
	observer := w.start("elect", "--observe", "office", "-o", "json")
	w.eventually("an observer sees nobody", func() bool { return len(leaders(t, observer)) == 1 })
	a := w.start("elect", "--ttl", "3", "--identity", "a", "office", "-c", reign("a"))
	first := w.terms("a", 1)
	b := w.start("elect", "--ttl", "5", "--identity", "b", "office", "-c", aliveOf("a")+reign("b"))
	w.eventually("queued", func() bool { return readJSON[lockReport](w, "show", "office").WaiterCount == 1 })
	if len(w.terms("a", 1)) != 1 {
		t.Error("the leader's command was started again")
	}
	a.Process.Kill()
	second := w.terms("b", 1)
	w.gone(w.pids("a.pids")...)
	w.wasGone()
	if first[0] >= second[0] {
		t.Errorf("tokens %v and then %v: want a larger one", first, second)
	}
	w.enough("b")
	if got := b.code(); got != 0 {
		t.Errorf("exit code %d: %s", got, b.err.String())
	}
	var seen []string
	w.eventually("nobody leads at last", func() bool {
		seen = nil
		for _, l := range leaders(t, observer) {
			seen = append(seen, l.Leader)
		}
		return len(seen) > 1 && seen[len(seen)-1] == ""
	})
	seen = slices.Compact(seen)
	if i := slices.Index(seen, "a"); i < 0 || !slices.Contains(seen[i:], "b") {
		t.Errorf("the observer saw %q, want a and then b", seen)
	}
}

func TestALeaderResignsOnTerm(t *testing.T) {
	w := newService(t)
	a := w.start("elect", "--ttl", "120", "--kill-after", "0.2", "office", "-c", `trap "echo term > got" TERM; `+reign("a"))
	w.terms("a", 1)
	b := w.start("elect", "--ttl", "120", "office", "-c", reign("b"))
	w.eventually("queued", func() bool { return readJSON[lockReport](w, "show", "office").WaiterCount == 1 })
	a.Process.Signal(syscall.SIGTERM)
	if got := a.code(); got != 128+9 { // it ignores TERM
		t.Errorf("exit code %d of the leader, want 137: %s", got, a.err.String())
	}
	if got := w.read("got"); got[0] != "term" {
		t.Error("the command got no TERM before KILL")
	}
	w.terms("b", 1) // long before the lease of 120 s ends
	b.Process.Signal(syscall.SIGINT)
	if got := b.code(); got != 128+15 {
		t.Errorf("exit code %d of the second leader, want 143: its command gets TERM", got)
	}
	if l := readJSON[lockReport](w, "show", "office"); len(l.Holders) != 0 || l.WaiterCount != 0 {
		t.Errorf("after both resigned: %+v", l)
	}
}

func TestALeaderThatIsRevokedStandsAgain(t *testing.T) {
	w := newService(t)
	a := w.start("elect", "office", "-c", reign("a"))
	w.terms("a", 1)
	pid := w.pids("a.pids")[0]
	b := w.start("elect", "office", "-c", aliveOf("a")+reign("b"))
	w.eventually("queued", func() bool { return readJSON[lockReport](w, "show", "office").WaiterCount == 1 })
	w.run(0, "revoke", "office", "--reason", "stuck", "--by", "alice")
	w.terms("b", 1)
	w.gone(pid)
	w.wasGone()
	w.eventually("it stands again", func() bool { return readJSON[lockReport](w, "show", "office").WaiterCount == 1 })
	w.enough("b")
	if got := b.code(); got != 0 {
		t.Errorf("exit code %d: %s", got, b.err.String())
	}
	if tokens := w.terms("a", 2); tokens[1] <= tokens[0] {
		t.Errorf("tokens %v: want a larger one in the second term", tokens)
	}
	w.enough("a")
	if got := a.code(); got != 0 {
		t.Errorf("exit code %d: %s", got, a.err.String())
	}
	if !strings.Contains(a.err.String(), "alice") {
		t.Errorf("stderr %q: want who revoked", a.err.String())
	}
}

func TestALostTermIsFollowedByAnother(t *testing.T) {
	for _, loss := range []string{"expired", "cut"} {
		t.Run(loss, func(t *testing.T) {
			w := newWorld(t)
			p := w.start("elect", "--ttl", "3", "x", "-c", reign("a"))
			w.terms("a", 1)
			first := w.pids("a.pids")[0]
			w.set(loss)
			w.gone(first)
			w.eventually("released", func() bool { return w.has("released") })
			w.unset(loss)
			w.terms("a", 2)
			w.eventually("a term that lasts", func() bool { pids := w.pids("a.pids"); return runs(pids[len(pids)-1]) })
			w.enough("a")
			if got := p.code(); got != 0 {
				t.Errorf("exit code %d: %s", got, p.err.String())
			}
			if masks := slices.Compact(w.read("a.masks")); len(masks) != 1 {
				t.Errorf("the commands ignore other signals from term to term: %v", masks)
			}
		})
	}
}

func TestACandidateThatWaitsEndsWithTerm(t *testing.T) {
	w := newWorld(t)
	w.set("busy")
	p := w.start("elect", "x", "--", "touch", "ran")
	w.eventually("queued", func() bool { return w.has("queued") })
	p.Process.Signal(syscall.SIGTERM)
	if got := p.code(); got != 128+15 {
		t.Errorf("exit code %d, want 143", got)
	}
	if w.has("queued") || !w.has("closed") {
		t.Error("want no ticket and a closed session")
	}
}

func TestACandidateOutlivesAnOutage(t *testing.T) {
	w := newWorld(t)
	p := w.start("elect", "--ttl", "3", "x", "-c", reign("a"))
	w.terms("a", 1)
	w.set("down")
	w.set("expired")
	w.eventually("it says so", func() bool { return strings.Contains(p.err.String(), "retrying") })
	w.unset("expired")
	w.unset("down")
	w.terms("a", 2)
	w.enough("a")
	if got := p.code(); got != 0 {
		t.Errorf("exit code %d: %s", got, p.err.String())
	}
}

func TestAPauseEndsWithTerm(t *testing.T) {
	w := newWorld(t)
	p := w.start("elect", "--ttl", "300", "x", "-c", reign("a")) // the retry period is 40 s
	w.terms("a", 1)
	w.set("expired")
	w.eventually("it says so", func() bool { return strings.Contains(p.err.String(), "campaigning again") })
	p.stopsAndGoesOn()
	p.Process.Signal(syscall.SIGTERM)
	if got := p.code(); got != 128+15 {
		t.Errorf("exit code %d, want 143: %s", got, p.err.String())
	}
}

func TestAServiceThatIsNeverReachedEndsElect(t *testing.T) {
	w := newWorld(t)
	w.set("down")
	_, stderr := w.run(CodeUnavailable, "elect", "x", "--", "touch", "ran")
	oneLineOf(t, stderr)
	if w.has("ran") || !w.has("closed") {
		t.Error("want no command and a closed session")
	}
}

func TestAMistypedEndpointEndsElect(t *testing.T) {
	w := newService(t)
	free, err := testbed.Addresses(1)
	if err != nil {
		t.Fatal(err)
	}
	_, stderr := w.run(CodeUnavailable, "elect", "--endpoints", free[0], "--connect-timeout", "0.5", "x", "--", "touch", "ran")
	oneLineOf(t, stderr)
	if !strings.Contains(stderr, free[0]) || w.has("ran") {
		t.Errorf("stderr %q, want the endpoint and no command", stderr)
	}
}

func TestACandidateOutlastsANodeOfAnotherCluster(t *testing.T) {
	t.Parallel()
	w := makeService(t)
	stale := freePorts(t, 1)[0]
	last := len(w.env) - 1
	one := w.env[last]
	a := w.start("elect", "office", "-c", reign("a"))
	w.terms("a", 1)
	w.env[last] = one + "," + stale
	b := w.start("elect", "office", "-c", reign("b"))
	// Long enough to have been served, and to ask the endpoints again.
	time.Sleep(11 * time.Second)
	_, port, _ := strings.Cut(stale, ":")
	other := w.start("dev", "--nodes", "1", "--port", port)
	w.eventually("the other cluster", func() bool { return strings.Contains(other.out.String(), "ready") })
	w.enough("a")
	if got := a.code(); got != 0 {
		t.Errorf("exit code %d: %s", got, a.err.String())
	}
	w.eventually("a report", func() bool { return strings.Count(b.err.String(), "endpoints of two clusters") >= 2 })
	if w.has("b.terms") {
		t.Error("the candidate led with endpoints of two clusters")
	}
	other.Process.Signal(syscall.SIGTERM)
	other.code()
	w.terms("b", 1)
	w.enough("b")
	if got := b.code(); got != 0 {
		t.Errorf("exit code %d: %s", got, b.err.String())
	}
}
