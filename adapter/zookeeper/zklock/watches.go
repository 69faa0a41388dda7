package zklock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// watches are the watches of a session that have not fired. The library keeps a channel for each
// watch that was asked for until it fires, so those that are interested in a node share one: a
// program that tries again and again while a lock is held must not pile them up.
type watches struct {
	sync.Mutex
	changed map[string]*watch // by path
	group   sync.WaitGroup
	isShut  bool // none is added after it is set
}

// A watch is closed when it has fired, or to make all who wait for it look again.
type watch struct {
	changed chan struct{}
	closing sync.Once
}

func (w *watch) close() { w.closing.Do(func() { close(w.changed) }) }

// armed is the watch of a path that has not fired, or nil.
func (s *session) armed(path string) <-chan struct{} {
	s.watches.Lock()
	defer s.watches.Unlock()
	if w := s.watches.changed[path]; w != nil {
		return w.changed
	}
	return nil
}

// arm keeps a watch. Its channel is closed when it fires or the session is over.
func (s *session) arm(path string, events <-chan zk.Event) <-chan struct{} {
	w := &watch{changed: make(chan struct{})}
	s.watches.Lock()
	defer s.watches.Unlock()
	if s.watches.isShut {
		w.close()
		return w.changed
	}
	s.watches.changed[path] = w
	s.watches.group.Go(func() {
		select {
		case <-events:
		case <-w.changed:
		case <-s.over().Done():
		}
		s.disarm(path, w)
	})
	return w.changed
}

// disarm ends a watch. Another may have taken its place in the table already.
func (s *session) disarm(path string, w *watch) {
	s.watches.Lock()
	defer s.watches.Unlock()
	if s.watches.changed[path] == w {
		delete(s.watches.changed, path)
	}
	w.close()
}

// recheck makes all who wait for a watch look again. After a reconnection the library asks for its
// watches again, but it can name a transaction that is too late, so that a change of a node's data
// in between is not told.
func (s *session) recheck() {
	s.watches.Lock()
	defer s.watches.Unlock()
	for path, w := range s.watches.changed {
		delete(s.watches.changed, path)
		w.close()
	}
}

// closeWatches waits for all watches of a session that is over.
func (s *session) closeWatches() {
	s.watches.Lock()
	s.watches.isShut = true
	s.watches.Unlock()
	s.watches.group.Wait()
}

// awaitChange waits until a watch fires, but not for ever.
func (s *session) awaitChange(ctx context.Context, changed <-chan struct{}) error {
	timer := time.NewTimer(recheckEvery)
	defer timer.Stop()
	select {
	case <-changed:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.over().Done():
		return s.cause()
	}
}

// keepWatch tells when the node of a lock is deleted. It fails when the session is over by now: no
// lock is granted to a dead session.
func (s *session) keepWatch(path string, changed <-chan struct{}, gone chan<- error) error {
	s.watches.Lock()
	defer s.watches.Unlock()
	if loss := s.lease.Check(); loss != nil || s.watches.isShut {
		return s.cause()
	}
	s.watches.group.Go(func() { s.awaitDeletion(path, changed, gone) })
	return nil
}

func (s *session) awaitDeletion(path string, changed <-chan struct{}, gone chan<- error) {
	for {
		if s.awaitChange(s.over(), changed) != nil {
			return
		}
		c, err := s.watch(s.over(), path)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			gone <- missing("the lock's node was deleted")
			return
		case err != nil:
			return
		}
		changed = c.changed
	}
}
