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

// maxGuests bounds the attached locks of one client: each has its own session, connection and
// goroutines.
const maxGuests = 1024

var _ lockstep.Detacher = (*Client)(nil)

// Detach implements [lockstep.Detacher]. It hands over the session, so the lock must be the only
// claim of its client: if there are others, even waiting ones, or with [lockstep.WithMaxHold],
// Detach changes nothing and returns [lockstep.ErrUnsupported]. A lock from Attach can always be
// detached. The client's next claim uses a new session. Detach does no I/O: the lease has as much
// time left as [lockstep.Lock.Remaining] reported.
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
			err = fmt.Errorf("%w: a lock with a maximum hold time cannot be detached", lockstep.ErrUnsupported)
			return
		}
		d, ok := h.sess.Detach(now, h.claim.seq)
		if !ok {
			err = fmt.Errorf("%w: the client has other claims: use a separate client for a lock that will be detached", lockstep.ErrUnsupported)
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

// dropSessionLocked forgets a session that continues without this client.
func (c *Client) dropSessionLocked() {
	c.mu.sess, c.mu.attached = nil, false
	clear(c.mu.claims)
	if c.mu.closed {
		close(c.over)
	}
}

// Attach implements [lockstep.Detacher]. It returns when the service has confirmed a renewal, so
// the full lease lies ahead. After [lockstep.ErrUnavailable] or the end of ctx the lock is
// unchanged: it can be attached again until its lease ends. The last process to attach has the
// lock; the previous one loses it, with [lockstep.RecordMissing], and its Release and Detach fail
// with the same loss. Processes that attach at the same time take turns, even on machines whose
// clocks differ. A malformed handle returns [lockstep.ErrInvalid]; a handle for a cluster other
// than that of the endpoints or of [Config.Cluster] returns [ErrTwoClusters]. The lock has its own
// session and connection, which end with Release, with Detach, or with Close of the client; a
// client can have at most 1,024 attached locks.
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
	// The service accepts only numbers above the last one, which the handle does not contain. The
	// clock is a good guess.
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

// newGuest returns a client for one attached lock of the cluster, which is empty if the handle does
// not name one. Closing c closes it.
func (c *Client) newGuest(cluster string, ttl time.Duration) (*Client, error) {
	cfg := c.cfg
	cfg.TTL, cfg.Cluster = ttl, cmp.Or(cluster, c.guard.cluster())
	guest, err := New(cfg)
	if err != nil {
		return nil, err
	}
	guest.guard.setChecked(cfg.Cluster != "") // the host has asked the endpoints, and every answer is checked anyway
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

// restore starts with a detached session instead of a new one.
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

// awaitRestored waits until the claim of a restored session is handed out or over. If neither
// happens in time, the session is left alone. So is a session whose claim was revoked: its previous
// holder may not have stopped yet.
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
		err := ended(ctx) // called without the mutex, as in await
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

// A guestLock is an attached lock, whose client serves only this lock.
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
