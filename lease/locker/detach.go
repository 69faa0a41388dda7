package locker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// Surrender ends this Locker's part in a lock and leaves it held in the store: the cause of its
// context becomes [lockstep.ErrDetached]. It is the half of Detach that all backends share. It
// returns [lockstep.ErrUnsupported] for a lock with a maximum hold, since no one would enforce it,
// [lockstep.ErrInvalid] for a lock of another Locker, and the cause for a lock that is over.
func (l *Locker) Surrender(held lockstep.Lock) (*Claim, Grant, error) {
	k, ok := held.(*lock)
	switch {
	case !ok || k.locker != l:
		return nil, Grant{}, &lockstep.InvalidError{Field: "lock", Value: lockstep.Excerpt(held.Name()), Rule: "must come from this locker"}
	case k.claim.MaxHold > 0:
		return nil, Grant{}, fmt.Errorf("%w: a lock with a longest hold cannot be detached", lockstep.ErrUnsupported)
	}
	k.Check()
	k.cancel(lockstep.ErrDetached)
	if cause := context.Cause(k.ctx); !errors.Is(cause, lockstep.ErrDetached) {
		return nil, Grant{}, cause
	}
	<-k.freed // no more renewals are sent
	return k.claim, k.grant, nil
}

// Hold makes a lock from what find found in the store: it is the half of Attach that backends of
// sessions share. The grant has a Lease. Close waits for find; after Close, Hold returns
// [lockstep.ErrClosed].
func (l *Locker) Hold(find func() (*Claim, Grant, error)) (lockstep.Lock, error) {
	if !l.enter() {
		return nil, lockstep.ErrClosed
	}
	defer l.calls.Done()
	c, g, err := find()
	if err != nil {
		return nil, err
	}
	return l.hold(c, g, nil), nil
}

// Undo ends, in the background, a claim that Surrender returned and that could not be handed over.
func (l *Locker) Undo(c *Claim) { l.undo(c) }

// A Detacher is the Locker of a backend of records whose locks can be handed to another process. It
// implements [lockstep.Detacher].
type Detacher struct{ *Locker }

var _ lockstep.Detacher = Detacher{}

// ticket is the contents of a handle.
type ticket struct {
	Backend string
	Names   []string
	ID      string
	Token   lockstep.Token
	Owner   string
	TTL     time.Duration
}

// Detach implements [lockstep.Detacher]. It does no I/O: the lease has as much time left as
// [lockstep.Lock.Remaining] reported.
func (d Detacher) Detach(_ context.Context, held lockstep.Lock) (lockstep.Handle, error) {
	c, g, err := d.Surrender(held)
	if err != nil {
		return "", &lockstep.OpError{Op: "detach", Lock: held.Name(), Err: err}
	}
	t := ticket{Backend: d.cfg.Capabilities.Backend, Names: c.Names, ID: c.ID, Token: g.Token, Owner: g.Owner, TTL: c.TTL}
	text, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("locker: ticket %+v: %v", t, err))
	}
	return lockstep.Handle(base64.RawURLEncoding.EncodeToString(text)), nil
}

// Attach implements [lockstep.Detacher]. The lock keeps the TTL that it was taken with.
func (d Detacher) Attach(ctx context.Context, h lockstep.Handle) (lockstep.Lock, error) {
	t, err := d.parse(h)
	if err != nil {
		return nil, &lockstep.OpError{Op: "attach", Err: err}
	}
	k, err := d.attach(ctx, t)
	if err != nil {
		return nil, &lockstep.OpError{Op: "attach", Lock: t.Names[0], Err: err}
	}
	return k, nil
}

func (d Detacher) parse(h lockstep.Handle) (t ticket, err error) {
	text, err := base64.RawURLEncoding.DecodeString(string(h))
	if err != nil || json.Unmarshal(text, &t) != nil || len(t.Names) != 1 || t.ID == "" {
		return t, &lockstep.InvalidError{Field: "handle", Rule: "must be what Detach gave"}
	}
	if own := d.cfg.Capabilities.Backend; t.Backend != own {
		return t, &lockstep.InvalidError{Field: "handle", Rule: fmt.Sprintf("is of backend %q, and this is %q", t.Backend, own)}
	}
	if _, err = lockstep.ResolveAcquire(d.cfg.Capabilities, t.Names[0]); err == nil {
		err = lockstep.CheckTTL(t.TTL)
	}
	return t, err
}

func (d Detacher) attach(ctx context.Context, t ticket) (*lock, error) {
	if !d.enter() {
		return nil, lockstep.ErrClosed
	}
	defer d.calls.Done()
	c := &Claim{AcquireConfig: lockstep.AcquireConfig{Names: t.Names}, ID: t.ID, TTL: t.TTL}
	state, clock := lease.New(t.TTL), d.cfg.Clock
	attempt := state.Sending(clock.Now())
	ctx, cancel := context.WithTimeout(ctx, lease.Interval(d.cfg.Capabilities.TTL))
	defer cancel()
	if err := d.renewer.Renew(ctx, c); err != nil {
		return nil, err
	}
	if !state.Confirm(clock.Now(), attempt) {
		return nil, &lockstep.LossError{Reason: lockstep.LeaseEnded}
	}
	return d.hold(c, Grant{Token: t.Token, Owner: t.Owner}, state), nil
}
