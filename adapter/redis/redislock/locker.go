package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// A Locker hands out the locks of one Redis server. In addition to [lockstep.Locker] it implements
// [lockstep.Inspector], [lockstep.Watcher] and [lockstep.Detacher]. It is safe for concurrent use.
type Locker struct {
	locker.Detacher

	backend *backend
}

var (
	_ lockstep.Locker    = (*Locker)(nil)
	_ lockstep.Inspector = (*Locker)(nil)
	_ lockstep.Watcher   = (*Locker)(nil)
	_ lockstep.Detacher  = (*Locker)(nil)
)

// New makes a Locker on the caller's client, which the caller closes after the Locker. Addresses,
// TLS, passwords and timeouts are the client's options. Its ReadTimeout, 3 s by default, must not
// be disabled: it bounds how long an unanswered call lives on in the background. New does no I/O
// and starts nothing.
//
// A [*redis.Ring] works, but does not announce releases: waiters poll.
func New(rdb redis.UniversalClient, cfg Config) (*Locker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	if err := checkClient(rdb); err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	b := &backend{
		store: newStore(rdb), hub: newHub(rdb), flights: flights{under: map[string]*flight{}},
		cfg: cfg, owner: "redis-" + strings.ToLower(rand.Text()[:12]),
	}
	kit := locker.New(b, locker.Config{
		Capabilities: cfg.capabilities(), UnavailableAfter: cfg.UnavailableAfter, RetryMax: retryMax, Logger: cfg.Logger,
	})
	return &Locker{Detacher: locker.Detacher{Locker: kit}, backend: b}, nil
}

// checkClient refuses a client whose calls may never end.
func checkClient(rdb redis.UniversalClient) error {
	var timeout time.Duration
	switch c := rdb.(type) {
	case nil:
		return &lockstep.InvalidError{Field: "client", Rule: "must not be nil"}
	case *redis.Client:
		timeout = c.Options().ReadTimeout
	case *redis.ClusterClient:
		timeout = c.Options().ReadTimeout
	default:
		return nil
	}
	if timeout <= 0 {
		return &lockstep.InvalidError{Field: "ReadTimeout of the client", Rule: "must not be off: a call without an answer would never end"}
	}
	return nil
}

// Key is the Redis key of a lock's record, for use with other tools.
func (l *Locker) Key(name string) string { return l.backend.keys(name).record }

// Inspect implements [lockstep.Inspector]. Redis does not know the waiters, so they are never
// listed; NextToken is not set. If the server does not answer within 10 s or before ctx ends, it
// returns [lockstep.ErrUnavailable].
func (l *Locker) Inspect(ctx context.Context, name string) (lockstep.State, error) {
	state, err := l.inspect(ctx, name)
	if err != nil {
		return lockstep.State{}, &lockstep.OpError{Op: "inspect", Lock: name, Err: err}
	}
	return state, nil
}

func (l *Locker) inspect(ctx context.Context, name string) (lockstep.State, error) {
	if err := lockstep.CheckName(name); err != nil {
		return lockstep.State{}, err
	}
	if l.backend.closed.Load() {
		return lockstep.State{}, lockstep.ErrClosed
	}
	holder, err := l.backend.show(ctx, name)
	switch {
	case err == nil && holder == nil:
		return lockstep.State{Name: name}, nil
	case err == nil:
		return lockstep.State{Name: name, Holders: []lockstep.Claim{*holder}}, nil
	case ctx.Err() != nil:
		return lockstep.State{}, ctx.Err()
	default:
		return lockstep.State{}, probeFailed(err)
	}
}

// Watch implements [lockstep.Watcher]. It polls every 500 ms, so it may miss a holder between two
// others. It keeps trying a server that does not answer for Config.UnavailableAfter before the
// error ends the sequence.
func (l *Locker) Watch(ctx context.Context, name string) iter.Seq2[lockstep.State, error] {
	return func(yield func(lockstep.State, error) bool) {
		var last *lockstep.State
		heard := time.Now()
		for {
			state, err := l.Inspect(ctx, name)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				heard = time.Now()
				if (last == nil || !same(*last, state)) && !yield(state, nil) {
					return
				}
				last = &state
			case !errors.Is(err, lockstep.ErrUnavailable) || time.Since(heard) > l.backend.cfg.UnavailableAfter:
				yield(lockstep.State{}, err)
				return
			}
			if !lease.Sleep(ctx, retryMax) {
				return
			}
		}
	}
}

// same reports whether the same claim holds the lock in both states.
func same(a, b lockstep.State) bool {
	if len(a.Holders) != len(b.Holders) {
		return false
	}
	for i, x := range a.Holders {
		y := b.Holders[i]
		if x.Token != y.Token || x.Owner != y.Owner || !x.Since.Equal(y.Since) || !maps.Equal(x.Metadata, y.Metadata) {
			return false
		}
	}
	return true
}
