package election

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// A Leader describes the current leader, as the backend sees it. The zero Leader means that there
// is none. The backend shows a leader until its lock is free, which is after its term has ended.
type Leader struct {
	// Identity is the [Config.Identity] of the candidate, or, if the claim is not a candidate's,
	// its owner as the backend reports it.
	Identity string
	// Token is the fencing token of the term.
	Token lockstep.Token
	// Since is when the lock was granted, on the backend's wall clock: for display.
	Since time.Time
}

// Nobody reports whether there is no leader.
func (l Leader) Nobody() bool { return l.Identity == "" }

// Observe yields the current leader and then each change: a new leader, a new term of the same one,
// or no leader. Changes that are superseded before the caller asks for them may be skipped; every
// yielded state was true, and the last true state is always yielded. The sequence ends after a
// non-nil error, which is [lockstep.ErrUnsupported] if the Locker is not a [lockstep.Watcher], or
// without one when ctx is done. It needs no candidate and does not take part in the election.
func Observe(ctx context.Context, locker lockstep.Locker, name string) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		watcher, ok := locker.(lockstep.Watcher)
		if !ok {
			yield(Leader{}, fmt.Errorf("%w: %s cannot watch", lockstep.ErrUnsupported, locker.Capabilities().Backend))
			return
		}
		first, last := true, Leader{}
		for state, err := range watcher.Watch(ctx, name) {
			if err != nil {
				yield(Leader{}, err)
				return
			}
			now := leaderOf(state)
			if !first && sameTerm(now, last) {
				continue
			}
			first, last = false, now
			if !yield(now, nil) {
				return
			}
		}
	}
}

// Observe is the function [Observe] for the candidate's election. It does not need Run.
func (c *Candidate) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return Observe(ctx, c.locker, c.name)
}

// sameTerm ignores Since, which a backend may round differently from time to time.
func sameTerm(a, b Leader) bool { return a.Identity == b.Identity && a.Token == b.Token }

func leaderOf(s lockstep.State) Leader {
	if len(s.Holders) == 0 {
		return Leader{}
	}
	claim := s.Holders[0]
	return Leader{Identity: identityOf(claim), Token: claim.Token, Since: claim.Since}
}

// identityOf is never empty: a claim without any labels still has a holder.
func identityOf(c lockstep.Claim) string {
	for _, id := range []string{c.Metadata[IdentityKey], c.Owner} {
		if id != "" {
			return id
		}
	}
	return "unknown"
}

func canTellLeader(l lockstep.Locker) bool {
	_, watches := l.(lockstep.Watcher)
	_, inspects := l.(lockstep.Inspector)
	return watches || inspects
}

// report calls OnNewLeader until ctx is done. After an error, and after each read on a backend that
// cannot watch, it pauses and continues.
func (c *Candidate) report(ctx context.Context) {
	reported := ""
	for ctx.Err() == nil {
		for leader, err := range c.leaders(ctx) {
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				c.cfg.Logger.Warn("cannot tell who leads, asking again", "err", err)
			case !leader.Nobody() && leader.Identity != reported:
				reported = leader.Identity
				c.cfg.OnNewLeader(reported)
			}
		}
		lease.Sleep(ctx, withJitter(c.cfg.RetryPeriod, rand.Float64()))
	}
}

// leaders watches the lock if the backend can watch, and otherwise reads it once.
func (c *Candidate) leaders(ctx context.Context) iter.Seq2[Leader, error] {
	if _, ok := c.locker.(lockstep.Watcher); ok {
		return c.Observe(ctx)
	}
	return func(yield func(Leader, error) bool) {
		state, err := c.locker.(lockstep.Inspector).Inspect(ctx, c.name)
		yield(leaderOf(state), err)
	}
}
