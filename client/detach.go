package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client/session"
)

// maxGuests bounds the attached locks of one client: each has a session, a connection and
// some goroutines of its own.
const maxGuests = 1024

var _ lockstep.Detacher = (*Client)(nil)

// Detach implements [lockstep.Detacher]. What is handed over is the session, so the lock must be
// the only claim of its client: with others, waiting ones too, and with [lockstep.WithMaxHold] it
// is [lockstep.ErrUnsupported], and nothing has changed. A lock that came from Attach can always be
// detached. A new session serves the client's next claim. Detach does no I/O: of the lease as much
// is left as [lockstep.Lock.Remaining] said.
func (c *Client) Detach(ctx context.Context, l lockstep.Lock) (lockstep.Handle, error) {
	switch l := l.(type) {
	case *guestLock:
		if l.host == c {
			h, err := l.handle.client.detach(l.handle)
			if err == nil {
				err = c.dismiss(ctx, l.handle.client)
			}
			return h, err
		}
	case *handle:
		if l.client == c {
			return c.detach(l)
		}
	}
	err := &lockstep.InvalidError{Field: "lock", Value: lockstep.Excerpt(l.Name()), Rule: "must come from this client"}
	return "", &lockstep.OpError{Op: "detach", Lock: l.Name(), Err: err}
}

func (c *Client) detach(h *handle) (text lockstep.Handle, err error) {
	c.do(func(now time.Duration) {
		if c.mu.sess != nil && c.mu.sess.Expire(now) {
			c.settleLocked()
		}
		switch {
		case h.over != nil:
			err = h.over
			return
		case h.endsAt != 0:
			err = fmt.Errorf("%w: a lock with a longest hold cannot be detached", lockstep.ErrUnsupported)
			return
		}
		d, ok := h.sess.Detach(now, h.claim.seq)
		if !ok {
			err = fmt.Errorf("%w: the client has other claims: use one of its own for a lock that is to be detached", lockstep.ErrUnsupported)
			return
		}
		c.dropSessionLocked()
		h.finishLocked(lockstep.ErrDetached)
		h.settle(lockstep.ErrDetached)
		text = encodeHandle(c.guard.cluster(), d, h.claim.cfg)
	})
	if err != nil {
		err = &lockstep.OpError{Op: "detach", Lock: h.Name(), Err: err}
	}
	return text, err
}

// dropSessionLocked forgets a session that goes on without this client.
func (c *Client) dropSessionLocked() {
	c.mu.sess, c.mu.attached = nil, false
	clear(c.mu.claims)
	if c.mu.closed {
		close(c.over)
	}
}

// Attach implements [lockstep.Detacher]. It returns when the service has confirmed a renewal, so
// the whole lease is ahead. [lockstep.ErrUnavailable] and the end of ctx leave the lock as it is:
// it can be attached again until its lease ends. Who attaches last has the lock; the one before it
// loses it for itself, with [lockstep.RecordMissing], and so do its Release and Detach. Several
// that attach at the same time take turns, also on machines whose clocks differ. A handle that is
// none is [lockstep.ErrInvalid], and one of another cluster than that of the endpoints or of
// [Config.Cluster] [ErrTwoClusters]. The lock has a session and a connection of its own, which end
// with Release, with Detach, or with Close of the client; a client has at most 1,024 of them.
func (c *Client) Attach(ctx context.Context, h lockstep.Handle) (lockstep.Lock, error) {
	cluster, d, cfg, err := decodeHandle(h)
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	if want := c.cfg.Cluster; cluster != "" && want != "" && cluster != want {
		return nil, &lockstep.OpError{Op: "attach", Lock: cfg.Names[0], Err: &ClusterError{Endpoint: "the handle", Cluster: cluster, Want: want}}
	}
	if err := c.guard.check(ctx); err != nil {
		return nil, &lockstep.OpError{Op: "attach", Lock: cfg.Names[0], Err: err}
	}
	guest, err := c.newGuest(cluster, d.TTL)
	if err != nil {
		return nil, &lockstep.OpError{Op: "attach", Lock: cfg.Names[0], Err: err}
	}
	// The service takes only numbers above the last one, which the handle does not know. The clock
	// is a good guess.
	d.Attach = max(d.Attach, uint64(time.Now().UnixMilli()))
	k := newClaim(cfg)
	guest.restore(d, k)
	guest.awaitRestored(ctx, k)
	if k.err != nil {
		err := errors.Join(k.err, c.dismiss(ctx, guest))
		return nil, &lockstep.OpError{Op: "attach", Lock: cfg.Names[0], Err: err}
	}
	return &guestLock{k.lock.handle(), c}, nil
}

// newGuest is a client for one attached lock of a cluster; empty: the handle does not say which.
// Close of c closes it.
func (c *Client) newGuest(cluster string, ttl time.Duration) (*Client, error) {
	cfg := c.cfg
	cfg.TTL, cfg.Cluster = ttl, cmp.Or(cluster, c.guard.cluster())
	guest, err := New(cfg)
	if err != nil {
		return nil, err
	}
	guest.guard.setChecked(cfg.Cluster != "") // the host has asked the endpoints, and every answer is compared
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mu.closed:
		return nil, lockstep.ErrClosed
	case len(c.mu.guests) == maxGuests:
		return nil, fmt.Errorf("%w: %d locks are attached: detach or release one first", lockstep.ErrQuota, maxGuests)
	}
	c.mu.guests = append(c.mu.guests, guest)
	return guest, nil
}

// dismiss ends the client of an attached lock.
func (c *Client) dismiss(ctx context.Context, guest *Client) error {
	c.mu.Lock()
	c.mu.guests = slices.DeleteFunc(c.mu.guests, func(g *Client) bool { return g == guest })
	c.mu.Unlock()
	return guest.Close(ctx)
}

// closeGuests releases the attached locks.
func (c *Client) closeGuests(ctx context.Context) error {
	c.mu.Lock()
	guests := c.mu.guests
	c.mu.guests = nil
	c.mu.Unlock()
	var errs []error
	for _, g := range guests {
		errs = append(errs, g.Close(ctx))
	}
	return errors.Join(errs...)
}

// restore begins with a detached session in place of a new one.
func (c *Client) restore(d session.Detached, k *claim) {
	c.do(func(now time.Duration) {
		c.startLocked()
		c.mu.generation++
		c.mu.downSince = now
		k.started, k.seq = now, d.Seq
		c.mu.claims[k.seq] = k
		c.mu.sess = session.Restore(session.Config{FirstTag: c.mu.generation * tagsPerSession, Rand: jitter}, d)
		wake(c.wakeLink)
	})
}

// awaitRestored waits until the claim of a restored session is handed out or over. When it is
// neither in time the session is left alone, and so is one whose claim was revoked: whoever worked
// under it may not have stopped.
func (c *Client) awaitRestored(ctx context.Context, k *claim) {
	var bound <-chan time.Time
	if after := c.cfg.UnavailableAfter; after >= 0 {
		timer := time.NewTimer(after)
		defer timer.Stop()
		bound = timer.C
	}
	why := c.unavailableLocked
	select {
	case <-k.answered:
	case <-bound:
	case <-ctx.Done():
		err := ended(ctx) // asked without the mutex, as in await
		why = func() error { return c.endedLocked(err) }
	}
	c.do(func(time.Duration) {
		select {
		case <-k.answered:
		default:
			k.fail(why())
		}
		if k.err != nil && c.mu.sess != nil {
			c.mu.sess.Abandon()
			c.dropSessionLocked()
		}
	})
}

// A guestLock is an attached lock, whose client serves it alone.
type guestLock struct {
	*handle
	host *Client
}

// Release implements [lockstep.Lock], and ends the session of the lock with it.
func (g *guestLock) Release(ctx context.Context) error {
	err := g.handle.Release(ctx)
	if err == nil || errors.Is(err, lockstep.ErrLost) {
		_ = g.host.dismiss(ctx, g.client) // a session that holds nothing ends with its lease if it cannot be ended now
	}
	return err
}
