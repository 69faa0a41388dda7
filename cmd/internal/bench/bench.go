// Package bench measures how fast locks are granted: workers acquire and release a lock in a closed
// loop for a set time.
//
// It works over any [lockstep.Locker]. While measuring, it also checks that the tokens of each name
// increase.
package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// A Workload says which names the workers use.
type Workload string

// The workloads.
const (
	Free Workload = "free" // each worker has its own name: no waiting
	Hot  Workload = "hot"  // all workers share one name: always waiting
)

// ParseWorkload parses the name of a workload.
func ParseWorkload(s string) (Workload, error) {
	if w := Workload(s); w == Free || w == Hot {
		return w, nil
	}
	return "", fmt.Errorf("workload %q: must be %q or %q", s, Free, Hot)
}

// The bounds of a Config.
const (
	MaxWorkers = 100_000
	MaxClients = 10_000
)

// A Config describes one measurement.
type Config struct {
	Workload Workload
	// Workers is the number of concurrent workers, 1 to MaxWorkers.
	Workers int
	// Clients is the number of clients that the workers share. Each has its own session. 0 means
	// one per 64 workers.
	Clients  int
	Duration time.Duration
	// Prefix is the prefix of the names. Default: "bench".
	Prefix string
	// Connect returns a new client.
	Connect func() (lockstep.Locker, error)
	// Progress, if set, is called about once a second.
	Progress func(elapsed time.Duration, grants int64)
}

func (c Config) withDefaults() Config {
	if c.Clients == 0 {
		c.Clients = (c.Workers + 63) / 64
	}
	if c.Prefix == "" {
		c.Prefix = "bench"
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Workers < 1 || c.Workers > MaxWorkers:
		return invalid("workers", c.Workers, "must be 1 to %d", MaxWorkers)
	case c.Clients < 1 || c.Clients > min(c.Workers, MaxClients):
		return invalid("clients", c.Clients, "must be 1 to the number of workers, at most %d", MaxClients)
	case c.Duration < time.Second:
		return invalid("duration", c.Duration, "must be at least 1s")
	}
	return nil
}

func invalid(field string, value any, rule string, args ...any) error {
	return &lockstep.InvalidError{Field: field, Value: fmt.Sprint(value), Rule: fmt.Sprintf(rule, args...)}
}

// A Result holds what was measured. Latencies are those of Acquire, from the call to the grant.
type Result struct {
	Workload        Workload `json:"workload"`
	Workers         int      `json:"workers"`
	Clients         int      `json:"clients"`
	Seconds         float64  `json:"seconds"`
	Grants          int64    `json:"grants"`
	GrantsPerSecond float64  `json:"grants_per_second"`
	P50             float64  `json:"p50_ms"`
	P99             float64  `json:"p99_ms"`
	Max             float64  `json:"max_ms"`
	// LongestGap is the longest time in which no worker was granted a lock.
	LongestGap float64 `json:"longest_gap_ms"`
	// Errors is the number of failed calls, of which FirstError is one.
	Errors     int64  `json:"errors"`
	FirstError string `json:"first_error,omitempty"`
	// Regressions is the number of grants whose token was not above the previous one of the name.
	Regressions  int64  `json:"token_regressions"`
	HighestToken uint64 `json:"highest_token"`
}

// Run runs the measurement. It returns an error if the clients cannot be created or ctx ends. Calls
// that fail during the measurement are counted in the Result.
func Run(ctx context.Context, cfg Config) (Result, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return Result{}, err
	}
	lockers, err := connect(cfg)
	defer closeAll(lockers)
	if err != nil {
		return Result{}, err
	}
	r := newRun(cfg, lockers)
	if err := r.warmUp(ctx); err != nil {
		return Result{}, err
	}
	if err := r.measure(ctx); err != nil {
		return Result{}, err
	}
	return r.result(), nil
}

func connect(cfg Config) ([]lockstep.Locker, error) {
	var lockers []lockstep.Locker
	for range cfg.Clients {
		l, err := cfg.Connect()
		if err != nil {
			return lockers, fmt.Errorf("connect: %w", err)
		}
		lockers = append(lockers, l)
	}
	return lockers, nil
}

func closeAll(lockers []lockstep.Locker) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var g errgroup.Group
	for _, l := range lockers {
		g.Go(func() error { return l.Close(ctx) })
	}
	_ = g.Wait() // what was not closed ends with its lease
}

// A run is one measurement in progress.
type run struct {
	cfg     Config
	lockers []lockstep.Locker
	workers []*worker
	begin   time.Time
	took    time.Duration
	grants  atomic.Int64
	failed  atomic.Int64
	gaps    gaps
	hot     tokens // of the single name of the hot workload

	// A histogram takes 180 KB, too much for each of 100,000 workers, and a single one would be
	// contended.
	latencies [16]latencies

	mu struct {
		sync.Mutex
		firstError error
	}
}

// A worker acquires one name again and again.
type worker struct {
	name    string
	locker  lockstep.Locker
	latency *latencies
	tokens  *tokens
}

// tokens checks that the tokens of one name increase. Only the holder of the name calls rise.
type tokens struct {
	last        atomic.Uint64
	regressions atomic.Int64
}

func (t *tokens) rise(token lockstep.Token) {
	if last := t.last.Swap(uint64(token)); last >= uint64(token) {
		t.regressions.Add(1)
	}
}

func newRun(cfg Config, lockers []lockstep.Locker) *run {
	r := &run{cfg: cfg, lockers: lockers}
	for i := range cfg.Workers {
		w := &worker{
			name:    fmt.Sprintf("%s/%s/%d", cfg.Prefix, cfg.Workload, i),
			locker:  lockers[i%len(lockers)],
			latency: &r.latencies[i%len(r.latencies)],
			tokens:  new(tokens),
		}
		if cfg.Workload == Hot {
			w.name, w.tokens = cfg.Prefix+"/"+string(Hot), &r.hot
		}
		r.workers = append(r.workers, w)
	}
	return r
}

// warmUp lets every client open its session before the clock starts.
func (r *run) warmUp(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(64)
	for i, l := range r.lockers {
		g.Go(func() error {
			name := fmt.Sprintf("%s/warm-up/%d", r.cfg.Prefix, i)
			lock, err := l.Acquire(ctx, name, lockstep.WithWait(30*time.Second))
			if err != nil {
				return fmt.Errorf("warm up: %w", err)
			}
			return lock.Release(ctx)
		})
	}
	return g.Wait()
}

func (r *run) measure(ctx context.Context) error {
	timed, cancel := context.WithTimeout(ctx, r.cfg.Duration)
	defer cancel()
	r.begin = time.Now()
	r.gaps.start(r.begin)
	var group sync.WaitGroup
	for _, w := range r.workers {
		group.Go(func() { r.work(timed, w) })
	}
	group.Go(func() { r.report(timed) })
	<-timed.Done()
	r.gaps.end(time.Now())
	r.took = time.Since(r.begin)
	group.Wait()
	return ctx.Err()
}

func (r *run) work(ctx context.Context, w *worker) {
	for ctx.Err() == nil {
		if err := r.once(ctx, w); err != nil && ctx.Err() == nil {
			r.fail(err)
			lease.Sleep(ctx, 10*time.Millisecond) // a closed port fails at once: avoid a busy loop
		}
	}
}

func (r *run) once(ctx context.Context, w *worker) error {
	asked := time.Now()
	lock, err := w.locker.Acquire(ctx, w.name)
	if err != nil {
		return err
	}
	granted := time.Now()
	w.tokens.rise(lock.Token())
	if ctx.Err() == nil {
		r.grants.Add(1)
		r.gaps.grant(granted)
		w.latency.record(granted.Sub(asked))
	}
	return lock.Release(context.WithoutCancel(ctx))
}

func (r *run) fail(err error) {
	r.failed.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.firstError == nil {
		r.mu.firstError = err
	}
}

func (r *run) report(ctx context.Context) {
	if r.cfg.Progress == nil {
		return
	}
	for lease.Sleep(ctx, time.Second) {
		r.cfg.Progress(time.Since(r.begin), r.grants.Load())
	}
}

func (r *run) result() Result {
	all := newHistogram()
	for i := range r.latencies {
		r.latencies[i].addTo(all)
	}
	var regressions int64
	var highest uint64
	counted := []*tokens{}
	for _, w := range r.workers {
		if !slices.Contains(counted[max(0, len(counted)-1):], w.tokens) {
			counted = append(counted, w.tokens)
			regressions += w.tokens.regressions.Load()
			highest = max(highest, w.tokens.last.Load())
		}
	}
	res := Result{
		Workload: r.cfg.Workload, Workers: r.cfg.Workers, Clients: r.cfg.Clients,
		Seconds:         r.took.Seconds(),
		Grants:          r.grants.Load(),
		GrantsPerSecond: float64(r.grants.Load()) / r.took.Seconds(),
		P50:             milliseconds(all.ValueAtQuantile(50)),
		P99:             milliseconds(all.ValueAtQuantile(99)),
		Max:             milliseconds(all.Max()),
		LongestGap:      float64(r.gaps.longest().Microseconds()) / 1000,
		Errors:          r.failed.Load(),
		Regressions:     regressions,
		HighestToken:    highest,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.firstError != nil && !errors.Is(r.mu.firstError, context.Canceled) {
		res.FirstError = r.mu.firstError.Error()
	}
	return res
}

func milliseconds(us int64) float64 { return float64(us) / 1000 }
