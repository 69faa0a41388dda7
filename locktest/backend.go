package locktest

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// A Backend describes a backend under test to the suite.
type Backend struct {
	// New returns a new Locker; all Lockers of one run share their names. It fails the test if it
	// cannot create one. The suite closes the Locker. Its TTL should be short, such as 1 s to 3 s,
	// as many checks wait for a lease to end.
	New func(t *testing.T) lockstep.Locker

	// Server injects faults into the backend. A nil field is a fault that cannot be caused.
	Server Server

	// Claims are the capabilities of a backend that is not part of this project; only the flags
	// count. Default: the table of the project's backends.
	Claims *lockstep.Capabilities

	// Goroutines is how many goroutines contend for one name at once. Default: 1000.
	Goroutines int

	// Slack is how much later than promised the backend may act on a loaded
	// machine. Default: 3 s.
	Slack time.Duration

	// Settle is how long to wait for a request to arrive if there is no Inspector to tell. Default:
	// 200 ms.
	Settle time.Duration
}

// A Server injects the faults of real life into the backend. Each function returns when it is done
// and fails the test if it cannot.
type Server struct {
	// Cut severs the network between one Locker and the backend: whatever either sends is dropped,
	// and no connection is closed. Heal restores it, and does nothing if it was not cut.
	Cut, Heal func(t *testing.T, l lockstep.Locker)
	// Restart stops the whole backend, keeping what it has stored, and starts it again.
	Restart func(t *testing.T)
	// Delete removes the record of a lock without anyone's knowledge.
	Delete func(t *testing.T, name string)
	// Revoke takes a lock away as operator by.
	Revoke func(t *testing.T, name, by string)
}

// A tb is what a check needs from a test. The suite's own tests pass one that only records, to see
// the suite fail.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Cleanup(func())
	Context() context.Context
}

// A check is one rule of the contract.
type check struct {
	name  string // a sentence
	needs []need
	// alone is set if the check disturbs the whole backend or measures the whole process.
	alone bool
	run   func(*env)
}

// checks are all rules, in the order of their files.
func checks() []check {
	return slices.Concat(lifecycleChecks(), inputChecks(), exclusionChecks(), waitingChecks(),
		releaseChecks(), modeChecks(), observerChecks(), faultChecks())
}

// Run checks the backend against the contract.
func Run(t *testing.T, b Backend) {
	b = b.withDefaults()
	probe := b.New(t)
	defer probe.Close(context.Background())
	var r report
	t.Run("together", func(t *testing.T) {
		var all []func()
		for _, c := range checks() {
			if !c.alone {
				all = append(all, func() { r.run(t, b, probe, c) })
			}
		}
		together(all)
	})
	for _, c := range checks() {
		if c.alone {
			r.run(t, b, probe, c)
		}
	}
	t.Log(r.String())
}

// maxTogether bounds the checks that run concurrently. They mostly wait for leases to end, so there
// may be more of them than processors, which is the limit of t.Parallel, but not so many that they
// slow each other down.
const maxTogether = 6

// together calls the functions, at most maxTogether at a time.
func together(all []func()) {
	slots := make(chan struct{}, maxTogether)
	var wg sync.WaitGroup
	for _, f := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f()
		})
	}
	wg.Wait()
}

func (b Backend) withDefaults() Backend {
	if b.Goroutines == 0 {
		b.Goroutines = 1000
	}
	if b.Slack == 0 {
		b.Slack = 3 * time.Second
	}
	if b.Settle == 0 {
		b.Settle = 200 * time.Millisecond
	}
	return b
}

// A report lists the checks that ran and the ones that were skipped, with the reason.
type report struct {
	mu      sync.Mutex
	ran     []string
	skipped []string
}

func (r *report) run(t *testing.T, b Backend, probe lockstep.Locker, c check) {
	missing := b.missing(probe, c)
	r.note(c.name, missing)
	t.Run(c.name, func(t *testing.T) {
		if missing != "" {
			t.Skip(missing)
		}
		c.run(newEnv(t, t, b, probe.Capabilities()))
	})
}

func (r *report) note(name, missing string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if missing == "" {
		r.ran = append(r.ran, name)
		return
	}
	r.skipped = append(r.skipped, name+": "+missing)
}

func (r *report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
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

// runID makes the names of one run differ from those of earlier runs on a backend
// that keeps its records.
var runID = strings.ToLower(rand.Text()[:10])
