package fencetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// A Store is one guarded resource, as one client sees it. It is used by many goroutines.
// Values are up to 64 KiB.
type Store interface {
	// Enter raises the mark and writes no data.
	Enter(ctx context.Context, g fence.Grant) error
	// Read returns the value. If there is none, the error wraps [io/fs.ErrNotExist].
	Read(ctx context.Context) ([]byte, error)
	// Write replaces the value, creating it if necessary, as [fence.Write].
	Write(ctx context.Context, g fence.Grant, value []byte) error
	// Delete removes the value, as [fence.Write]. There may be none.
	Delete(ctx context.Context, g fence.Grant) error
}

// A OnceStore can also write once per grant.
type OnceStore interface {
	Store
	// WriteOnce replaces the value as [fence.WriteOnce].
	WriteOnce(ctx context.Context, g fence.Grant, value []byte) error
}

// A Guard describes a guard under test to the suite.
type Guard struct {
	// Open returns the named resource, empty if the name is new, as another client would see it:
	// two stores with the same name are two processes on one resource. Names are 1 to 100 bytes of
	// letters, digits, "-" and "/". It fails the test if it cannot open the resource, and cleans up
	// with [testing.T.Cleanup].
	Open func(t *testing.T, resource string) Store

	// Crashes are the moments at which a writer can be made to die. Default: none can.
	Crashes []Crash

	// LoseReply makes the reply to the next write of this client get lost, after the write took
	// effect. The write may then return nil, if the guard finds out on its own, or an error.
	// Default: the suite discards the reply.
	LoseReply func(t *testing.T, s Store)

	// Restart stops the store, keeping what it has stored, and starts it again. Stores that were
	// opened before are no longer used. Default: the store cannot be restarted.
	Restart func(t *testing.T)

	// Writers is how many writers write to one resource at once. Default: 8.
	Writers int

	// Rounds is how often each of them writes. Default: 25.
	Rounds int

	// Timeout bounds one check, so that a guard that hangs cannot hang the suite.
	// Default: 2 min.
	Timeout time.Duration
}

// A Crash is a point in a write at which the writer dies.
type Crash struct {
	// Moment says when, such as "mark raised, data not written".
	Moment string
	// Write starts a write that dies at that point, and returns when it is dead. It fails the test
	// when the write was refused or did not die.
	Write func(t *testing.T, s Store, g fence.Grant, value []byte)
}

// A tb is what a check needs from a test. The suite's own tests pass one that only records, to see
// the suite fail.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
}

// A check is one rule that guards must keep.
type check struct {
	name  string // a sentence
	needs []need
	run   func(*env)
}

// checks are all rules, in the order of their files.
func checks() []check {
	return slices.Concat(orderChecks(), enterChecks(), onceChecks(), identityChecks(), concurrencyChecks(), faultChecks())
}

// Run checks the guard against all rules.
func Run(t *testing.T, g Guard) {
	g = g.withDefaults()
	probe := g.Open(t, resourceName("probe"))
	var r report
	for _, c := range checks() {
		r.run(t, g, probe, c)
	}
	t.Log(r.String())
}

func (g Guard) withDefaults() Guard {
	if g.Writers == 0 {
		g.Writers = 8
	}
	if g.Rounds == 0 {
		g.Rounds = 25
	}
	if g.Timeout == 0 {
		g.Timeout = 2 * time.Minute
	}
	return g
}

// A need returns what is missing for a check to apply, or nothing.
type need func(g Guard, probe Store) (missing string)

func (c check) missing(g Guard, probe Store) string {
	for _, n := range c.needs {
		if missing := n(g, probe); missing != "" {
			return missing
		}
	}
	return ""
}

func writesOnce(_ Guard, probe Store) string {
	if _, ok := probe.(OnceStore); ok {
		return ""
	}
	return "not implemented: OnceStore"
}

func canCrash(g Guard, _ Store) string {
	if len(g.Crashes) > 0 {
		return ""
	}
	return "the test cannot make a writer die"
}

func canRestart(g Guard, _ Store) string {
	if g.Restart != nil {
		return ""
	}
	return "the test cannot restart the store"
}

// A report lists the checks that ran and the ones that were skipped, with the reason.
type report struct{ ran, skipped []string }

func (r *report) run(t *testing.T, g Guard, probe Store, c check) {
	missing := c.missing(g, probe)
	if missing == "" {
		r.ran = append(r.ran, c.name)
	} else {
		r.skipped = append(r.skipped, c.name+": "+missing)
	}
	t.Run(c.name, func(t *testing.T) {
		if missing != "" {
			t.Skip(missing)
		}
		runCheck(t, t, g, c)
	})
}

func (r *report) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d checks ran:\n", len(r.ran))
	for _, name := range r.ran {
		fmt.Fprintf(&s, "  %s\n", name)
	}
	fmt.Fprintf(&s, "%d checks do not apply:\n", len(r.skipped))
	for _, line := range r.skipped {
		fmt.Fprintf(&s, "  %s\n", line)
	}
	return s.String()
}

// runID makes the names of one run differ from those of earlier runs on a store that keeps its
// data.
var runID = strings.ToLower(rand.Text()[:10])

var resources atomic.Int64

func resourceName(last string) string {
	return fmt.Sprintf("fencetest-%s-%d/%s", runID, resources.Add(1), last)
}

// An env is what one check works with: its own resource.
type env struct {
	tb
	t        *testing.T // for the functions of the guard
	guard    Guard
	resource string
	lock     string
	ctx      context.Context
}

func runCheck(notes tb, t *testing.T, g Guard, c check) {
	ctx, cancel := context.WithTimeout(notes.Context(), g.Timeout)
	defer cancel()
	name := resourceName("x")
	c.run(&env{tb: notes, t: t, guard: g, resource: name, lock: name, ctx: ctx})
}

// fresh returns the same check on another resource.
func (e *env) fresh() *env {
	other := *e
	other.resource = resourceName("x")
	other.lock = other.resource
	return &other
}

// open returns the check's resource as another client sees it.
func (e *env) open() Store { return e.guard.Open(e.t, e.resource) }

func (e *env) grant(token lockstep.Token) fence.Grant {
	return fence.Grant{Backend: "fencetest:main", Lock: e.lock, Token: token}
}

// together calls f(0) to f(n-1) at the same time and waits for them.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
