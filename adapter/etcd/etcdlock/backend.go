package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// backend is etcd as the Locker sees it. It is safe for concurrent use.
type backend struct {
	cli *clientv3.Client
	cfg Config

	ttl    atomic.Int64   // time.Duration last granted by etcd; zero before the first session
	stream atomic.Int64   // the number of the stream for new watches
	turn   chan struct{}  // held while opening a session
	group  sync.WaitGroup // goroutines: one per session, one per held lock

	// entering and leaving limit how many keys are created and deleted at once. A thousand
	// goroutines that claim at once, or whose session has ended, must not keep etcd from renewing
	// the lease in time.
	entering, leaving gate
	waiting           atomic.Int64 // claims that watch another claim's key

	work    context.Context // for the group; done when Close gives up
	endWork context.CancelFunc

	mu struct {
		sync.Mutex
		session *session
		claims  map[string]*claim // those that may be in etcd, by id
	}
}

func newBackend(cli *clientv3.Client, cfg Config) *backend {
	b := &backend{cli: cli, cfg: cfg, turn: make(chan struct{}, 1), entering: make(gate, gateWidth), leaving: make(gate, gateWidth)}
	b.work, b.endWork = context.WithCancel(context.Background())
	b.mu.claims = map[string]*claim{}
	return b
}

// Take implements [locker.Backend].
func (b *backend) Take(ctx context.Context, c *locker.Claim) (locker.Grant, error) {
	s, err := b.current(ctx)
	if err != nil {
		return locker.Grant{}, err
	}
	k := b.begin(c, s)
	grant, err := k.take(ctx)
	if err != nil && k.absent() && !errors.Is(err, lockstep.ErrLost) { // the Locker does not drop it
		b.forget(c.ID)
	}
	return grant, err
}

func (b *backend) begin(c *locker.Claim, s *session) *claim {
	k := newClaim(b, s, c)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.claims[c.ID] = k
	return k
}

// claim returns the claim with this id, or nil if it is certainly not in etcd.
func (b *backend) claim(id string) *claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.claims[id]
}

func (b *backend) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.claims, id)
}

// Drop implements [locker.Backend].
func (b *backend) Drop(ctx context.Context, c *locker.Claim) error {
	k := b.claim(c.ID)
	if k == nil {
		return &lockstep.LossError{Reason: lockstep.RecordMissing, Detail: "it was ended before"}
	}
	err := k.drop(ctx)
	if err == nil || errors.Is(err, lockstep.ErrLost) {
		b.forget(c.ID)
		if k.session.isGuest {
			k.session.lease.End(lockstep.ErrReleased)
		}
	}
	return err
}

// Close implements [locker.Backend]: it ends the sessions. What cannot be done before ctx is done
// is left to the lease.
func (b *backend) Close(ctx context.Context) error {
	for _, s := range b.sessions() {
		s.lease.End(lockstep.ErrReleased)
	}
	stop := context.AfterFunc(ctx, b.endWork)
	defer stop()
	b.group.Wait()
	b.endWork()
	return nil
}

// sessions returns the sessions that may be alive: the Locker's own and those of attached locks.
func (b *backend) sessions() (all []*session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.session != nil {
		all = append(all, b.mu.session)
	}
	for _, k := range b.mu.claims {
		if k.session.isGuest {
			all = append(all, k.session)
		}
	}
	return all
}

// requestTimeout is how long one request may take before it counts as lost: the client sends the
// next one to another member. It is long enough for a busy etcd, which retries would only make
// busier, and bounds the cost of a dead connection.
const requestTimeout = 2 * time.Second

// persist calls f, each time with [requestTimeout], until it succeeds, its error is final, or ctx
// is done. The error is that of the last call, translated to the contract's errors, or the cause of
// ctx.
func (b *backend) persist(ctx context.Context, f func(context.Context) error) error {
	backoff := lease.Backoff{Base: 25 * time.Millisecond, Max: 500 * time.Millisecond}
	for {
		err := b.once(ctx, f)
		translated, final := translate(err)
		switch {
		case err == nil, final:
			return translated
		case isOurs(err):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		lease.Sleep(ctx, backoff.Next())
	}
}

func (b *backend) once(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return f(ctx)
}

// isOurs reports whether an error comes from this package, so that retrying would not change it.
func isOurs(err error) bool {
	return errors.Is(err, lockstep.ErrBusy) || errors.Is(err, lockstep.ErrLost)
}

// A gate bounds how many calls run at a time by its capacity.
type gate chan struct{}

// gateWidth is how many creations, and how many deletions, one Locker has in progress at a time.
const gateWidth = 16

// do calls f once there is room, or returns the cause of ctx.
func (g gate) do(ctx context.Context, f func() error) error {
	select {
	case g <- struct{}{}:
		defer func() { <-g }()
		return f()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
