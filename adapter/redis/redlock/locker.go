package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// A Locker hands out locks over N independent Redis masters. It implements [lockstep.Locker],
// [lockstep.Inspector] and [lockstep.Detacher], and is safe for concurrent use.
type Locker struct {
	locker.Detacher
	backend *backend
}

var (
	_ lockstep.Locker    = (*Locker)(nil)
	_ lockstep.Inspector = (*Locker)(nil)
	_ lockstep.Detacher  = (*Locker)(nil)
)

// New makes a Locker over 3, 5, 7 or 9 masters; 5 is recommended. With 3, one down for maintenance
// leaves none to spare; each further pair adds syncs to every lock, and it is rare that three fail
// at once. An argument that breaks a rule returns [lockstep.ErrInvalid].
//
// New sends nothing: the first Acquire examines each node and fails with [lockstep.ErrInvalid],
// naming the node, if it is a replica, a cluster node, a sentinel, a server that evicts keys, older
// than Redis 7, or the same server as another node. The caller still owns the clients and closes
// them after the Locker. TLS and passwords are options of the clients. The Locker's requests have
// their own timeout, the node timeout; hooks of the clients do not see them.
func New(nodes []*redis.Client, cfg Config) (*Locker, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(cfg.validate(), checkNodes(nodes)); err != nil {
		return nil, fmt.Errorf("redlock: %w", err)
	}
	b := newBackend(nodes, cfg)
	kit := locker.New(b, locker.Config{Capabilities: capabilities(cfg), Clock: cfg.Clock, Logger: cfg.Logger, UnavailableAfter: cfg.UnavailableAfter})
	return &Locker{Detacher: locker.Detacher{Locker: kit}, backend: b}, nil
}

func newBackend(clients []*redis.Client, cfg Config) *backend {
	b := &backend{cfg: cfg, scripts: newScripts(), sweeping: make(chan struct{}, maxSweeps), takes: make(chan struct{}, maxTakes)}
	b.life, b.endLife = context.WithCancel(context.Background())
	identity := &identities{}
	for i, client := range clients {
		b.nodes = append(b.nodes, newNode(i, client, cfg.NodeTimeout, identity, cfg.Logger))
		b.all = append(b.all, i)
	}
	return b
}

func capabilities(cfg Config) lockstep.Capabilities {
	return lockstep.Capabilities{
		Backend: "redlock", TTL: cfg.TTL, Grace: grace,
		Fenced: true, ClockBound: true,
		Notes: []string{
			"Exclusion depends on the clocks of the Redis nodes: a node whose clock jumps ahead ends locks early, and two clients can hold one lock.",
			"A node that is started again without what it had stored can grant what is held: set appendonly yes and appendfsync always on every node.",
			"Tokens rise as long as nodes keep what they have stored; where one does not, as long as its wall clock is ahead of all tokens before.",
			"The nodes must be independent masters: a failover to a replica loses votes.",
			"Safety comes from a guard at the resource that refuses an older token.",
		},
	}
}

// Inspect implements [lockstep.Inspector]: the holder is the one that a majority of the nodes
// shows. Waiters are unknown, since they poll. If no majority answers, it returns
// [lockstep.ErrUnavailable].
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
	sights, err := l.backend.look(ctx, name)
	if err != nil {
		return lockstep.State{}, err
	}
	state := lockstep.State{Name: name}
	if holder, found := holderOf(len(l.backend.nodes), sights); found {
		state.Holders = []lockstep.Claim{holder}
		state.NextToken = holder.Token + 1
	}
	return state, nil
}

// A glimpse is the record that one node shows, or that it has none, or why it cannot tell.
type glimpse struct {
	record string
	err    error
}

// look reads the record of a lock on all nodes.
func (b *backend) look(ctx context.Context, name string) (sights []sight, err error) {
	heard := 0
	poll(ctx, b, question[glimpse]{
		nodes: b.all,
		ask: func(ctx context.Context, n *node) glimpse {
			record, err := n.client.Get(ctx, b.lockKey(name)).Result()
			if errors.Is(err, redis.Nil) {
				return glimpse{}
			}
			return glimpse{record, err}
		},
		hear: func(a answer[glimpse]) bool {
			if a.value.err != nil {
				err = errors.Join(err, a.value.err)
				return false
			}
			heard++
			if _, rest, ok := strings.Cut(a.value.record, " "); ok {
				if s, err := parseSight(rest); err == nil { // otherwise it is another program's key, which has no holder
					sights = append(sights, s)
				}
			}
			return heard >= majority(len(b.nodes))
		},
	})
	switch {
	case heard >= majority(len(b.nodes)):
		return sights, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	default:
		return nil, fmt.Errorf("%w: %d of %d nodes answered: %w", lockstep.ErrUnavailable, heard, len(b.nodes), orSilent(err))
	}
}
