package zklock

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// Inspect implements [lockstep.Inspector]. Since is when a claim was queued, even for a holder. A
// shared claim that is about to hold the lock is a waiter until it has written its token.
func (l *Locker) Inspect(ctx context.Context, name string) (lockstep.State, error) {
	state, err := l.backend.inspect(ctx, name)
	if err != nil {
		return lockstep.State{}, &lockstep.OpError{Op: "inspect", Lock: name, Err: err}
	}
	return state, nil
}

func (b *backend) inspect(ctx context.Context, name string) (lockstep.State, error) {
	if err := lockstep.CheckName(name); err != nil {
		return lockstep.State{}, err
	}
	s, err := b.present(ctx)
	if err != nil {
		return lockstep.State{}, err
	}
	dir := dirOf(s.cfg.Root, name)
	if err := s.sync(ctx, dir); err != nil {
		return lockstep.State{}, err
	}
	state, err := s.inspect(ctx, name)
	return state.State, err
}

// inspect reads the state of a lock as the server sees it.
func (s *session) inspect(ctx context.Context, name string) (snapshot, error) {
	dir := dirOf(s.cfg.Root, name)
	l, err := s.list(ctx, dir)
	if err != nil {
		return snapshot{}, err
	}
	state, err := s.describe(ctx, dir, l.nodes)
	state.Name = name
	if state.NextToken == 0 && l.stat != nil { // the next node comes after the last change
		state.NextToken = lockstep.Token(l.stat.Pzxid) + 1
	}
	return state, err
}

// describe returns the claims of a queue that still exist.
func (s *session) describe(ctx context.Context, dir string, q queue) (snapshot, error) {
	contents, err := s.readAll(ctx, dir, q)
	var state snapshot
	for i, c := range contents {
		if c.stat != nil {
			state.add(q[i], c)
		}
	}
	return state, err
}

// A snapshot is a state under construction.
type snapshot struct {
	lockstep.State
	isClosed   bool // by an exclusive claim: all later ones wait
	isSettling bool // a shared claim is about to hold the lock
}

// add adds the next claim of the queue.
func (s *snapshot) add(n node, c content) {
	claim := lockstep.Claim{Owner: c.record.Owner, Since: time.UnixMilli(c.stat.Ctime), Metadata: c.record.Metadata}
	if n.isShared {
		claim.Mode = lockstep.Shared
	}
	own, isFirst := lockstep.Token(c.stat.Czxid), len(s.Holders)+len(s.Waiters) == 0
	switch {
	case !n.isShared && isFirst:
		claim.Token = own
	case !n.isShared && s.NextToken == 0:
		s.NextToken = own
	case n.isShared && !s.isClosed:
		claim.Token = c.record.Token
		s.isSettling = s.isSettling || claim.Token == 0
	}
	s.isClosed = s.isClosed || !n.isShared
	if claim.Token != 0 {
		s.Holders = append(s.Holders, claim)
	} else {
		s.Waiters = append(s.Waiters, claim)
	}
}

// maxReads bounds the concurrent reads for one state.
const maxReads = 16

// readAll reads the nodes of a queue. A deleted node has no stat.
func (s *session) readAll(ctx context.Context, dir string, q queue) ([]content, error) {
	contents, failed := make([]content, len(q)), make([]error, len(q))
	slots := make(chan struct{}, maxReads)
	var group sync.WaitGroup
	for i, n := range q {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			c, err := s.read(ctx, join(dir, n.name))
			if err == nil {
				contents[i] = c
			} else if !errors.Is(err, zk.ErrNoNode) {
				failed[i] = err
			}
		})
	}
	group.Wait()
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}
	return contents, nil
}

// Watch implements [lockstep.Watcher]. While ZooKeeper cannot be reached nothing is yielded.
func (l *Locker) Watch(ctx context.Context, name string) iter.Seq2[lockstep.State, error] {
	return func(yield func(lockstep.State, error) bool) {
		err := l.backend.follow(ctx, name, func(s lockstep.State) bool { return yield(s, nil) })
		if err != nil && ctx.Err() == nil {
			yield(lockstep.State{}, &lockstep.OpError{Op: "watch", Lock: name, Err: err})
		}
	}
}

// errStopped ends a watch whose caller has stopped.
var errStopped = errors.New("stopped")

// follow yields states until ctx is done or a permanent error occurs.
func (b *backend) follow(ctx context.Context, name string, yield func(lockstep.State) bool) error {
	if err := lockstep.CheckName(name); err != nil {
		return err
	}
	w := watching{name: name, yield: yield}
	backoff := lease.Backoff{Max: 500 * time.Millisecond}
	for ctx.Err() == nil {
		err := w.inSession(ctx, b)
		switch {
		case errors.Is(err, errStopped):
			return nil
		case errors.Is(err, lockstep.ErrClosed), isRefused(err):
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Next()):
		}
	}
	return nil
}

// watching is one call of Watch.
type watching struct {
	name  string
	yield func(lockstep.State) bool
	last  *lockstep.State // last state yielded
}

// inSession follows the lock until the session is over.
func (w *watching) inSession(ctx context.Context, b *backend) error {
	s, err := b.present(ctx)
	if err != nil {
		return err
	}
	for {
		changed, err := s.watchDir(ctx, dirOf(s.cfg.Root, w.name))
		if err != nil {
			return err
		}
		state, err := s.inspect(ctx, w.name)
		if err != nil {
			return err
		}
		if !w.show(state.State) {
			return errStopped
		}
		if err := s.awaitNext(ctx, changed, state); err != nil {
			return err
		}
	}
}

// show yields a state that differs from the last.
func (w *watching) show(state lockstep.State) (goesOn bool) {
	if w.last != nil && reflect.DeepEqual(w.last.Holders, state.Holders) && reflect.DeepEqual(w.last.Waiters, state.Waiters) {
		return true
	}
	w.last = &state
	return w.yield(state)
}

// tokenSoon is how soon a shared claim may have written its token, which no watch reports.
const tokenSoon = 50 * time.Millisecond

// awaitNext waits until the state may have changed.
func (s *session) awaitNext(ctx context.Context, changed <-chan struct{}, state snapshot) error {
	if state.isSettling {
		return s.pause(ctx, tokenSoon)
	}
	return s.awaitChange(ctx, changed)
}
