package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// A session is a lease in etcd, to which the keys of all claims made under it are attached. It ends
// once.
type session struct {
	id    clientv3.LeaseID
	key   string // exists as long as the lease
	lease *locker.Lease

	// isGuest is set for the lease of an attached lock: it has no key of its own, no claim is made
	// under it, and it ends with the lock.
	isGuest bool

	// generation is the mod revision of key. A claim's key is created only while that stands, so
	// whoever writes to key makes sure that no creation sent before, of which no answer came, takes
	// effect any more.
	generation atomic.Int64
}

// owner is the public name of the session.
func (s *session) owner() string { return leaseText(s.id) }

// raise notes a newer generation.
func (s *session) raise(generation int64) {
	for {
		old := s.generation.Load()
		if generation <= old || s.generation.CompareAndSwap(old, generation) {
			return
		}
	}
}

// bind gives a context that also ends with the session.
func (s *session) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.lease.Context(), func() { cancel(context.Cause(s.lease.Context())) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// current gives the living session, and opens one when there is none. Its error means that nothing
// was done for the caller.
func (b *backend) current(ctx context.Context) (*session, error) {
	if s := b.living(); s != nil {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return nil, unavailable(ctx.Err())
	}
	if s := b.living(); s != nil { // opened by the caller before
		return s, nil
	}
	s, err := b.open(ctx)
	if err != nil {
		return nil, unavailable(fmt.Errorf("open a session: %w", err))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.session = s
	return s, nil
}

func (b *backend) living() *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.mu.session; s != nil && s.lease.Check() == nil {
		return s
	}
	return nil
}

// open gets a lease and gives it a key. A lease whose grant was not heard of ends by itself, and
// nothing is attached to it.
func (b *backend) open(ctx context.Context) (*session, error) {
	state := lease.New(time.Duration(b.cfg.seconds()) * time.Second)
	attempt := state.Sending(b.cfg.Clock.Now())
	granted, err := b.cli.Grant(ctx, b.cfg.seconds())
	if err != nil {
		return nil, err
	}
	ttl := time.Duration(granted.TTL) * time.Second
	s := &session{id: granted.ID, key: b.cfg.sessionKey(granted.ID)}
	put, err := b.cli.Put(ctx, s.key, "", clientv3.WithLease(s.id))
	if err != nil {
		return nil, err
	}
	s.raise(put.Header.Revision)
	state.Adopt(ttl)
	if !state.Confirm(b.cfg.Clock.Now(), attempt) {
		return nil, errors.New("the answer took longer than the lease lasts")
	}
	b.ttl.Store(int64(ttl))
	b.keep(s, state, ttl)
	return s, nil
}

// keep renews the lease of a session from now on, and revokes it at the end.
func (b *backend) keep(s *session, state *lease.State, ttl time.Duration) {
	s.lease = locker.KeepLease(b.cfg.Clock, state, func(ctx context.Context) error { return b.renew(ctx, s.id, ttl) })
	b.group.Go(func() { b.retire(s, ttl) })
}

// renew makes the lease last its full TTL. It asks twice when the first try takes long: the client
// sends each to another member, so that one dead connection does not cost a whole renewal. Both
// count from the sending of the first.
func (b *backend) renew(ctx context.Context, id clientv3.LeaseID, ttl time.Duration) error {
	first, cancel := context.WithTimeout(ctx, lease.Interval(ttl)/3)
	defer cancel()
	if _, err := b.renewOnce(first, id); err == nil || errors.Is(err, lockstep.ErrLost) {
		return err
	}
	_, err := b.renewOnce(ctx, id)
	return err
}

// renewOnce sends one renewal and returns the TTL of the lease. The client's own KeepAliveOnce
// would repeat it without a pause for as long as no member can be reached.
func (b *backend) renewOnce(ctx context.Context, id clientv3.LeaseID) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the stream
	defer cancel()
	stream, err := pb.NewLeaseClient(b.cli.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		return 0, err
	}
	answer, err := stream.Recv()
	if err != nil {
		return 0, err
	}
	if answer.TTL <= 0 { // this is how etcd says that it does not know the lease
		return 0, &lockstep.LossError{Reason: lockstep.SessionExpired, Detail: "etcd has no such lease"}
	}
	return time.Duration(answer.TTL) * time.Second, nil
}

// retire revokes the lease of a session that is over here, so that what is attached to it is free
// before the lease runs out in etcd too. It gives up when that has certainly happened. A lease that
// goes on without this Locker is left alone.
func (b *backend) retire(s *session, ttl time.Duration) {
	<-s.lease.Context().Done()
	if errors.Is(context.Cause(s.lease.Context()), lockstep.ErrDetached) {
		return
	}
	ctx, cancel := context.WithTimeout(b.work, ttl+grace)
	defer cancel()
	err := b.persist(ctx, func(ctx context.Context) error {
		_, err := b.cli.Revoke(ctx, s.id)
		return err
	})
	if err != nil {
		b.cfg.Logger.Debug("a session is left to its lease", "session", s.owner(), "err", err)
	}
}
