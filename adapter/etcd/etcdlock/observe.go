package etcdlock

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// maxShown bounds the claims of one lock that are read for display: the first ones.
const maxShown = 10_000

// listing reads the first claims below a prefix.
func listing(prefix string, limit int64) clientv3.Op {
	return clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithLimit(limit),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
}

// readQueue makes a queue from the keys below the root of a name.
func readQueue(root string, kvs []*mvccpb.KeyValue) queue {
	var q queue
	for _, kv := range kvs {
		if e, ok := readEntry(root, kv); ok {
			q = append(q, e)
		}
	}
	return order(q)
}

// Inspect implements [lockstep.Inspector]. It shows the first 10,000 claims. The times are those
// recorded by the claiming processes on their own clocks; the owner is the id of the lease, as
// shown by "etcdctl lease list". It is one linearizable read.
func (l *Locker) Inspect(ctx context.Context, name string) (lockstep.State, error) {
	state, err := l.inspect(ctx, name)
	if err != nil {
		return lockstep.State{}, &lockstep.OpError{Op: "inspect", Lock: name, Err: err}
	}
	return state, nil
}

func (l *Locker) inspect(ctx context.Context, name string) (lockstep.State, error) {
	switch {
	case lockstep.CheckName(name) != nil:
		return lockstep.State{}, lockstep.CheckName(name)
	case l.backend.work.Err() != nil:
		return lockstep.State{}, lockstep.ErrClosed
	}
	bounded, cancel := context.WithTimeout(ctx, l.backend.cfg.UnavailableAfter)
	defer cancel()
	q, revision, err := l.backend.list(bounded, name)
	if err != nil {
		return lockstep.State{}, ofReading(ctx, err)
	}
	return q.state(name, revision), nil
}

func (b *backend) list(ctx context.Context, name string) (q queue, revision int64, err error) {
	root := b.cfg.root(name)
	answer, err := b.cli.Do(ctx, listing(root, maxShown))
	if err != nil {
		return nil, 0, err
	}
	found := answer.Get()
	return readQueue(root, found.Kvs), found.Header.Revision, nil
}

// Watch implements [lockstep.Watcher]. It skips no state that etcd still has; after an outage or a
// compaction it continues with the current one. While etcd cannot be reached nothing is yielded.
func (l *Locker) Watch(ctx context.Context, name string) iter.Seq2[lockstep.State, error] {
	return func(yield func(lockstep.State, error) bool) {
		if err := l.watch(ctx, name, func(s lockstep.State) bool { return yield(s, nil) }); err != nil {
			yield(lockstep.State{}, &lockstep.OpError{Op: "watch", Lock: name, Err: err})
		}
	}
}

// watch returns nil when ctx is done or show returns false.
func (l *Locker) watch(ctx context.Context, name string, show func(lockstep.State) bool) error {
	if err := lockstep.CheckName(name); err != nil {
		return err
	}
	own, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	defer context.AfterFunc(l.backend.work, cancel)()
	backoff := lease.Backoff{}
	for {
		err := l.backend.follow(own, name, show)
		translated, final := translate(err)
		switch {
		case ctx.Err() != nil, errors.Is(err, errEnough):
			return nil
		case own.Err() != nil:
			return lockstep.ErrClosed
		case final:
			return translated
		}
		lease.Sleep(own, backoff.Next())
	}
}

// errEnough ends a watch whose caller has stopped.
var errEnough = errors.New("etcdlock: nobody watches any more")

// follow shows the current state and each one that follows, until the watch fails.
func (b *backend) follow(ctx context.Context, name string, show func(lockstep.State) bool) error {
	ctx, cancel := context.WithCancel(ctx) // ends the watch
	defer cancel()
	q, revision, err := b.list(ctx, name)
	if err != nil {
		return err
	}
	if !show(q.state(name, revision)) {
		return errEnough
	}
	root, claims := b.cfg.root(name), map[string]entry{}
	for _, e := range q {
		claims[e.key] = e
	}
	for answer := range b.cli.Watch(ctx, root, clientv3.WithPrefix(), clientv3.WithRev(revision+1)) {
		if err := answer.Err(); err != nil {
			return err
		}
		for at, events := range byRevision(answer.Events) {
			apply(claims, root, events)
			if !show(order(slices.Collect(maps.Values(claims))).state(name, at)) {
				return errEnough
			}
		}
	}
	return errWatchEnded
}

// byRevision yields the events of each revision together: what one transaction did, or the end of
// one lease, is one change.
func byRevision(events []*clientv3.Event) iter.Seq2[int64, []*clientv3.Event] {
	return func(yield func(int64, []*clientv3.Event) bool) {
		for len(events) != 0 {
			at, n := events[0].Kv.ModRevision, 1
			for n < len(events) && events[n].Kv.ModRevision == at {
				n++
			}
			if !yield(at, events[:n]) {
				return
			}
			events = events[n:]
		}
	}
}

func apply(claims map[string]entry, root string, events []*clientv3.Event) {
	for _, event := range events {
		if event.Type == clientv3.EventTypeDelete {
			delete(claims, string(event.Kv.Key))
		} else if e, ok := readEntry(root, event.Kv); ok {
			claims[e.key] = e
		}
	}
}
