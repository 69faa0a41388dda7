package zklock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// watches holds the watches of a session that have not fired. The library keeps a channel for each
// requested watch until it fires, so all callers interested in a node share one: a program that
// keeps retrying while a lock is held must not accumulate them.
type watches struct {
	sync.Mutex
	changed map[string]*watch // by path
	group   sync.WaitGroup
	isShut  bool // once set, none is added
}

// A watch is closed when it has fired, or to make all its waiters check again.
type watch struct {
	changed chan struct{}
	closing sync.Once
}

func (w *watch) close() { w.closing.Do(func() { close(w.changed) }) }

// armed returns the watch of a path that has not fired, or nil.
func (s *session) armed(path string) <-chan struct{} {
	s.watches.Lock()
	defer s.watches.Unlock()
	if w := s.watches.changed[path]; w != nil {
		return w.changed
	}
	return nil
}

// arm registers a watch. Its channel is closed when it fires or the session is over.
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

// disarm ends a watch. Another may already have replaced it in the table.
func (s *session) disarm(path string, w *watch) {
	s.watches.Lock()
	defer s.watches.Unlock()
	if s.watches.changed[path] == w {
		delete(s.watches.changed, path)
	}
	w.close()
}

// recheck makes all waiters check again. After a reconnection the library sets its watches again,
// but it can name too late a transaction, so that a change of a node's data in between is not
// reported.
func (s *session) recheck() {
	s.watches.Lock()
	defer s.watches.Unlock()
	for path, w := range s.watches.changed {
		delete(s.watches.changed, path)
		w.close()
	}
}

// closeWatches waits for all watches of an ended session.
func (s *session) closeWatches() {
	s.watches.Lock()
	s.watches.isShut = true
	s.watches.Unlock()
	s.watches.group.Wait()
}

// awaitChange waits until a watch fires, but not forever.
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

// keepWatch reports when the node of a lock is deleted. It fails if the session is already over: no
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
