package etcdlock

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

var _ lockstep.Detacher = (*Locker)(nil)

// A ticket is the contents of a handle: a key, and the lease that only this key is attached to.
type ticket struct {
	Backend string
	Name    string
	Shared  bool
	ID      string // of the claim
	Created int64
	Token   lockstep.Token
	Lease   clientv3.LeaseID
}

// Detach implements [lockstep.Detacher]. It gives the lock its own lease with the full TTL, and
// keeps its key's place in the queue; other locks of this Locker are not affected. A lock from
// Attach already has its own lease: nothing is sent, the handle stays the same, and the lease has
// as much time left as [lockstep.Lock.Remaining] reported.
//
// A lock with a maximum hold returns [lockstep.ErrUnsupported] and stays held. After an etcd error
// the lock is over for this process, and is freed in the background.
func (l *Locker) Detach(ctx context.Context, held lockstep.Lock) (lockstep.Handle, error) {
	c, grant, err := l.Surrender(held)
	if err == nil {
		err = l.backend.detach(ctx, c)
		if err != nil {
			l.Undo(c)
		}
	}
	if err != nil {
		return "", &lockstep.OpError{Op: "detach", Lock: held.Name(), Err: err}
	}
	k := l.backend.claim(c.ID)
	l.backend.forget(c.ID)
	return ticket{
		Backend: "etcd", Name: c.Names[0], Shared: c.Mode == lockstep.Shared, ID: c.ID,
		Created: k.created, Token: grant.Token, Lease: k.session.id,
	}.encode(), nil
}

// detach moves the key of a claim to a lease that no one renews.
func (b *backend) detach(ctx context.Context, c *locker.Claim) error {
	k := b.claim(c.ID)
	k.unwatch()
	if k.session.isGuest {
		k.session.lease.End(lockstep.ErrDetached)
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, b.cfg.UnavailableAfter)
	defer cancel()
	spare, err := b.cli.Grant(bounded, b.cfg.seconds())
	if err == nil {
		err = k.move(bounded, spare.ID)
	}
	if err != nil {
		return ofAttaching(ctx, err)
	}
	k.session = &session{id: spare.ID}
	return nil
}

// ofAttaching is the error of Attach or Detach.
func ofAttaching(ctx context.Context, err error) error {
	if errors.Is(err, lockstep.ErrLost) || errors.Is(err, lockstep.ErrInvalid) {
		return err
	}
	return ofReading(ctx, err)
}

// move attaches the key to another lease. It retries until it gets an answer; moving the key twice
// is harmless.
func (k *claim) move(ctx context.Context, to clientv3.LeaseID) error {
	return k.backend.persist(ctx, func(ctx context.Context) error {
		answer, err := k.backend.cli.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(k.key), "=", k.created)).
			Then(clientv3.OpPut(k.key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(to))).
			Commit()
		if err == nil && !answer.Succeeded {
			return &lockstep.LossError{Reason: lockstep.RecordMissing, Detail: "its key is gone"}
		}
		return err
	})
}

// Attach implements [lockstep.Detacher]. The lock has its own session, which ends with its release,
// or continues without this Locker after Detach. Two processes that attach the same handle hold the
// same lock: release it once.
func (l *Locker) Attach(ctx context.Context, h lockstep.Handle) (lockstep.Lock, error) {
	t, err := l.decode(h)
	if err != nil {
		return nil, &lockstep.OpError{Op: "attach", Err: err}
	}
	held, err := l.Hold(func() (*locker.Claim, locker.Grant, error) { return l.backend.attach(ctx, t) })
	if err != nil {
		return nil, &lockstep.OpError{Op: "attach", Lock: t.Name, Err: err}
	}
	return held, nil
}

func (b *backend) attach(ctx context.Context, t ticket) (*locker.Claim, locker.Grant, error) {
	bounded, cancel := context.WithTimeout(ctx, b.cfg.UnavailableAfter)
	defer cancel()
	s, err := b.revive(bounded, t.Lease)
	if err != nil {
		return nil, locker.Grant{}, ofAttaching(ctx, err)
	}
	k := b.begin(t.claim(), s)
	k.created = t.Created
	v, err := k.look(bounded)
	if err == nil && v.ahead != "" {
		err = &lockstep.InvalidError{Field: "handle", Rule: "must be that of a lock, and this claim has others ahead"}
	}
	if err != nil {
		b.forget(k.ID)
		s.lease.End(lockstep.ErrDetached)
		return nil, locker.Grant{}, ofAttaching(ctx, err)
	}
	return k.Claim, locker.Grant{Token: t.Token, Owner: s.owner(), Lease: s.lease, Gone: k.watchOver(v.revision)}, nil
}

// revive renews the lease of a detached lock, and makes a session from it.
func (b *backend) revive(ctx context.Context, id clientv3.LeaseID) (*session, error) {
	var state *lease.State
	var ttl time.Duration
	err := b.persist(ctx, func(ctx context.Context) error {
		state = lease.New(time.Duration(b.cfg.seconds()) * time.Second)
		attempt := state.Sending(b.cfg.Clock.Now())
		granted, err := b.renewOnce(ctx, id)
		if err != nil {
			return err
		}
		ttl = granted
		state.Adopt(ttl)
		if !state.Confirm(b.cfg.Clock.Now(), attempt) {
			return errors.New("etcdlock: the answer took longer than the lease lasts")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s := &session{id: id, isGuest: true}
	b.keep(s, state, ttl)
	return s, nil
}

func (t ticket) claim() *locker.Claim {
	c := &locker.Claim{AcquireConfig: lockstep.AcquireConfig{Names: []string{t.Name}}, ID: t.ID}
	if t.Shared {
		c.Mode = lockstep.Shared
	}
	return c
}

func (t ticket) encode() lockstep.Handle {
	text, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("etcdlock: ticket %+v: %v", t, err))
	}
	return lockstep.Handle(base64.RawURLEncoding.EncodeToString(text))
}

func (l *Locker) decode(h lockstep.Handle) (t ticket, err error) {
	text, err := base64.RawURLEncoding.DecodeString(string(h))
	if err != nil || json.Unmarshal(text, &t) != nil || t.ID == "" || t.Created <= 0 || t.Lease == 0 {
		return t, &lockstep.InvalidError{Field: "handle", Rule: "must be what Detach gave"}
	}
	if own := l.Capabilities().Backend; t.Backend != own {
		return t, &lockstep.InvalidError{Field: "handle", Rule: fmt.Sprintf("is of backend %q, and this is %q", t.Backend, own)}
	}
	return t, lockstep.CheckName(t.Name)
}
