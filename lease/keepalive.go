package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// WatchEvery is the longest interval at which a watcher of a lease wakes. Go's timers stop while
// the machine is suspended: a timer set for the end of the lease would fire late by the length of
// the suspend.
const WatchEvery = 250 * time.Millisecond

// maxInFlight bounds the renewals that hang at the same time. Each gets TTL/3, so more than three
// can be in flight only if renewals ignore their contexts.
const maxInFlight = 4

// KeepAlive renews the lease until it is over. The State must already be confirmed, by the attempt
// that took the lock. KeepAlive returns
//
//   - a [*lockstep.LossError] with LeaseEnded when ValidUntil has passed by the
//     local clock, whether or not the backend can be reached, and after [State.End];
//   - the error of renew when it is a loss (errors.Is [lockstep.ErrLost]), which is how the backend
//     reports that the lock is gone;
//   - the cause of ctx when ctx is done.
//
// renew sends one renewal and returns nil when the backend has confirmed the full TTL. It is called
// every TTL/3 and, after any other error, again after a jittered wait of at most TTL/12. No number
// of failures ends the loop before ValidUntil. The context of a call ends after TTL/3. KeepAlive
// does not wait for a call that hangs longer, nor for one that is in progress when it returns. A
// renewal that hangs does not prevent the next one from being sent; at most four are in flight at a
// time.
func KeepAlive(ctx context.Context, clock Clock, st *State, renew func(context.Context) error) error {
	return KeepAliveSince(ctx, clock, st, func(ctx context.Context) (time.Duration, error) { return Never, renew(ctx) })
}

// KeepAliveSince is KeepAlive for a backend whose confirmation guarantees less than the full TTL
// from the send: renew also returns the time on clock from which the backend counts. A time later
// than the send counts as the send time.
func KeepAliveSince(ctx context.Context, clock Clock, st *State, renew func(context.Context) (since time.Duration, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k := keeper{
		clock: clock, st: st, renew: renew,
		answers: make(chan answer, maxInFlight),
		backoff: Backoff{Max: max(st.TTL()/12, 50*time.Millisecond)},
		due:     st.NextSend(clock.Now()),
	}
	return k.run(ctx)
}

type keeper struct {
	clock   Clock
	st      *State
	renew   func(context.Context) (time.Duration, error)
	answers chan answer // has room for all in flight, so no renewal blocks after run has returned
	backoff Backoff
	due     time.Duration // the next renewal
	open    int           // renewals in flight
	last    error         // of the newest renewal that failed; nil after a success
}

type answer struct {
	attempt uint64
	since   time.Duration
	err     error
}

func (k *keeper) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case a := <-k.answers:
			k.open--
			if errors.Is(a.err, lockstep.ErrLost) {
				k.st.End()
				return a.err
			}
			k.take(a)
		case <-timer.C:
		}
		now := k.clock.Now()
		if k.st.Over(now) {
			return k.lost()
		}
		if now >= k.due && k.open < maxInFlight {
			k.send(ctx, now)
		}
		timer.Reset(k.untilNextLook(now))
	}
}

// take handles the answer of a renewal, in whatever order the answers arrive.
func (k *keeper) take(a answer) {
	now := k.clock.Now()
	if a.err != nil {
		k.last = a.err
		k.due = min(k.due, now+k.backoff.Next())
		return
	}
	if k.st.ConfirmSince(now, a.attempt, a.since) {
		k.last = nil
		k.backoff.Reset()
		k.due = k.st.NextSend(now)
	}
}

// send starts one renewal. The next one is due when this one's time is up.
func (k *keeper) send(ctx context.Context, now time.Duration) {
	limit := Interval(k.st.TTL())
	attempt := k.st.Sending(now)
	k.due = now + limit
	k.open++
	go func() {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		since, err := k.renew(ctx)
		k.answers <- answer{attempt, since, err}
	}()
}

func (k *keeper) untilNextLook(now time.Duration) time.Duration {
	next := k.st.ValidUntil()
	if k.open < maxInFlight {
		next = min(next, k.due)
	}
	return max(min(next-now, WatchEvery), 0)
}

func (k *keeper) lost() error {
	loss := &lockstep.LossError{Reason: lockstep.LeaseEnded}
	if k.last != nil {
		loss.Detail = fmt.Sprintf("the last renewal failed: %v", k.last)
	}
	return loss
}
