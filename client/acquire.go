package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client/session"
)

// waitSlackMax bounds how much longer than requested a wait lasts on the client, which is half a
// percent of it. The service, which also times the wait, thus decides first and ends the claim
// without a Cancel. A new leader restarts its timer, and then the client decides.
const waitSlackMax = 100 * time.Millisecond

// A claim is one call of Acquire and the lock that it led to.
type claim struct {
	cfg     lockstep.AcquireConfig
	spec    *pb.ClaimSpec
	started time.Duration
	seq     uint64 // in the client's session; changes with it

	answered chan struct{} // closed when lock or err is set
	lock     *lock
	err      error
	queued   *session.Update // the last update about the queue; nil = none
	deferred *pb.Error       // why the service has not accepted it yet; nil = it has, or did not answer
}

func newClaim(cfg lockstep.AcquireConfig) *claim {
	k := &claim{cfg: cfg, answered: make(chan struct{})}
	k.spec = &pb.ClaimSpec{
		Names:       cfg.Names,
		Mode:        pb.Mode(cfg.Mode),
		Weight:      uint32(cfg.Weight),
		Capacity:    uint32(cfg.Capacity),
		LockDelayMs: millis(cfg.LockDelay),
		Metadata:    cfg.Metadata,
	}
	if cfg.HasWait {
		k.spec.WaitMs = proto.Uint64(millis(cfg.Wait))
	}
	return k
}

// specFor is the claim to request at now, after part of the wait has passed.
func (k *claim) specFor(now time.Duration) *pb.ClaimSpec {
	if !k.cfg.HasWait || k.cfg.Wait == 0 {
		return k.spec
	}
	spec := proto.CloneOf(k.spec)
	left := max(k.started+k.cfg.Wait-now, time.Millisecond) // zero would be a try
	spec.WaitMs = proto.Uint64(millis(left))
	return spec
}

func (k *claim) fail(err error) {
	k.err = err
	close(k.answered)
}

// busy is the error of a claim whose wait ran out on the client. If the session ended at the same
// moment, the last update about the queue is gone.
func (k *claim) busy() error {
	if k.queued == nil {
		return &lockstep.BusyError{}
	}
	return &lockstep.BusyError{Holders: claimsOf(k.queued.Holders), Position: int(k.queued.Position)}
}

// refusal is the error of a refused claim. At the end of a wait the service does not repeat who was
// in the way.
func (k *claim) refusal(e *pb.Error) error {
	if e.GetReason() == pb.Reason_REASON_BUSY && len(e.GetHolders()) == 0 && k.queued != nil {
		return k.busy()
	}
	return fromWire(e)
}

// Acquire implements [lockstep.Locker]. If no node serves for [Config.UnavailableAfter] it returns
// [lockstep.ErrUnavailable], and if the endpoints belong to two clusters [ErrTwoClusters]. A
// session that ends while the claim waits is replaced, and the claim goes to the end of the queue.
func (c *Client) Acquire(ctx context.Context, name string, opts ...lockstep.AcquireOption) (lockstep.Lock, error) {
	cfg, err := lockstep.ResolveAcquire(promises, name, opts...)
	if err == nil && ctx.Err() != nil {
		err = ended(ctx)
	}
	if err != nil {
		return nil, &lockstep.OpError{Op: "acquire", Lock: name, Err: err}
	}
	k := newClaim(cfg)
	c.do(func(now time.Duration) {
		k.started = now
		c.submitLocked(now, k)
	})
	c.await(ctx, k)
	c.confirmCluster(ctx, k)
	c.cfg.Observer.Observe(Event{Kind: Acquired, Name: name, Took: c.cfg.Clock.Now() - k.started, Err: k.err})
	if k.err != nil {
		return nil, &lockstep.OpError{Op: "acquire", Lock: name, Err: k.err}
	}
	return k.lock.handle(), nil
}

// submitLocked makes the claim in the current session, or in a new one.
func (c *Client) submitLocked(now time.Duration, k *claim) {
	if c.mu.closed {
		k.fail(lockstep.ErrClosed)
		return
	}
	if c.mu.sess != nil && c.mu.sess.Expire(now) { // process the updates of its end first
		c.settleLocked()
	}
	c.openLocked(now)
	c.checkClusterLocked()
	k.queued, k.deferred = nil, nil
	k.seq = c.mu.sess.Acquire(now, k.spec)
	c.mu.claims[k.seq] = k
}

// await waits until the claim is answered. If the caller's wait ends first, the claim is given up:
// the session keeps cancelling it until that is confirmed.
func (c *Client) await(ctx context.Context, k *claim) {
	select { // an available answer takes precedence over a done context
	case <-k.answered:
		return
	default:
	}
	for {
		select {
		case <-k.answered:
			return
		case <-ctx.Done():
			err := ended(ctx) // called without the mutex: the caller's context may belong to a lock of this client
			c.giveUp(k, func() error { return c.endedLocked(err) })
			return
		case <-c.boundOf(k):
			if c.waitIsOver(k) {
				return
			}
		}
	}
}

// boundOf is when to check the end of the caller's wait next; never without WithWait. Timers stop
// while the machine is suspended, but the client's clock does not: it is checked every second.
func (c *Client) boundOf(k *claim) <-chan time.Time {
	if !k.cfg.HasWait {
		return nil
	}
	left := k.waitEnd() - c.cfg.Clock.Now()
	if left <= 0 { // it has no answer yet
		left = time.Second
	}
	return time.After(min(left, time.Second))
}

// waitEnd is when the caller's wait is over by the client's clock.
func (k *claim) waitEnd() time.Duration {
	return k.started + k.cfg.Wait + min(k.cfg.Wait/200, waitSlackMax)
}

// waitIsOver gives the claim up if its wait is over. A claim that the service has not answered at
// all gets the time of UnavailableAfter, if that is longer: the client may still be looking for the
// service.
func (c *Client) waitIsOver(k *claim) (over bool) {
	why := k.busy
	c.do(func(now time.Duration) {
		after := c.cfg.UnavailableAfter
		switch {
		case now < k.waitEnd():
		case k.queued != nil:
			over = true
		case k.deferred != nil:
			over, why = true, func() error { return fromWire(k.deferred) }
		case after >= 0 && now >= k.started+after:
			over, why = true, c.unavailableLocked
		}
	})
	if over {
		c.giveUp(k, why)
	}
	return over
}

// giveUp ends the claim with the error from why, unless it was answered in the meantime.
func (c *Client) giveUp(k *claim, why func() error) {
	c.do(func(now time.Duration) {
		select {
		case <-k.answered:
			return
		default:
		}
		delete(c.mu.claims, k.seq)
		err := why()
		if c.mu.sess != nil {
			c.mu.sess.Cancel(now, k.seq)
		}
		k.fail(err)
	})
}

// endedLocked is the error of a claim whose context is done with err; it says so if the service
// could not be reached.
func (c *Client) endedLocked(err error) error {
	if c.mu.attached || c.mu.lastErr == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, c.unavailableLocked())
}

// uncertain is the error of a call that ended before the service had answered.
func (c *Client) uncertain(ctx context.Context) error {
	return errors.Join(lockstep.ErrUncertain, ended(ctx))
}

func millis(d time.Duration) uint64 { return uint64((d + time.Millisecond - 1) / time.Millisecond) }

// namesOf returns a copy, since the caller may keep it.
func namesOf(k *claim) []string { return slices.Clone(k.cfg.Names) }
