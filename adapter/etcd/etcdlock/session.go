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

	// isGuest is set for the lease of an attached lock: it has no session key, no claim is made
	// under it, and it ends with the lock.
	isGuest bool

	// generation is the mod revision of key. A claim's key is created only while it is unchanged,
	// so writing to key ensures that an unanswered creation sent earlier can no longer take effect.
	generation atomic.Int64
}

// owner is the public name of the session.
func (s *session) owner() string { return leaseText(s.id) }

// raise records a newer generation.
func (s *session) raise(generation int64) {
	for {
		old := s.generation.Load()
		if generation <= old || s.generation.CompareAndSwap(old, generation) {
			return
		}
	}
}

// bind returns a context that also ends with the session.
func (s *session) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.lease.Context(), func() { cancel(context.Cause(s.lease.Context())) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// current returns the live session, and opens one if there is none. Its error means that nothing
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
	if s := b.living(); s != nil { // opened by the previous holder of the turn
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

// open gets a lease and gives it a key. If the grant of a lease is lost on the way, the lease
// expires by itself with nothing attached to it.
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

// keep renews the lease of a session until the session ends, and then revokes it.
func (b *backend) keep(s *session, state *lease.State, ttl time.Duration) {
	s.lease = locker.KeepLease(b.cfg.Clock, state, func(ctx context.Context) error { return b.renew(ctx, s.id, ttl) })
	b.group.Go(func() { b.retire(s, ttl) })
}

// renew extends the lease to its full TTL. It sends a second request if the first takes long: the
// client sends each to a different member, so that one dead connection does not cost a whole
// renewal. Both count from when the first was sent.
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
	if answer.TTL <= 0 { // etcd's way of saying that it does not know the lease
		return 0, &lockstep.LossError{Reason: lockstep.SessionExpired, Detail: "etcd has no such lease"}
	}
	return time.Duration(answer.TTL) * time.Second, nil
}

// retire revokes the lease of a session that is over locally, so that its keys are freed before the
// lease runs out in etcd. It gives up when the lease has certainly run out. A lease that continues
// without this Locker is left alone.
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
