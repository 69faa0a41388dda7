package sim

import (
	"context"
	"slices"
	"time"
)

// shrinkStep is the part of the time up to a failure that one shrinking step tries to save.
const shrinkStep = 4

// Shrink looks for smaller options under which the seed still breaks the same promise: without
// kinds of faults, with fewer clients, over a shorter time. It runs the seed at most tries times
// and stops early when ctx is done. o must fail; r is its report.
func Shrink(ctx context.Context, o Options, r Report, tries int) (Options, Report) {
	s := shrinking{ctx: ctx, best: o.withDefaults(), report: r, tries: tries}
	s.best.Clients = r.Clients
	for changed := true; changed; {
		changed = false
		for _, name := range r.Faults {
			if !slices.Contains(s.best.Without, name) {
				changed = s.try(func(o *Options) { o.Without = append(slices.Clone(o.Without), name) }) || changed
			}
		}
		changed = s.try(func(o *Options) { o.Clients-- }) || changed
		changed = s.try(func(o *Options) { o.Duration -= o.Duration / shrinkStep }) || changed
	}
	return s.best, s.report
}

type shrinking struct {
	ctx    context.Context
	best   Options
	report Report
	tries  int
}

// try keeps a change if the seed still fails in the same way, and reports whether it did.
func (s *shrinking) try(change func(*Options)) bool {
	o := s.best
	change(&o)
	if s.tries == 0 || s.ctx.Err() != nil || o.Clients < 1 || o.Duration < time.Second {
		return false
	}
	s.tries--
	r := Run(o)
	if r.Failure == nil || r.Failure.Promise != s.report.Failure.Promise {
		return false
	}
	s.best, s.report = o, r
	return true
}
