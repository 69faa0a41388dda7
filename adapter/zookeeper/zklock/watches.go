package zklock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// watches are the watches of a session that have not fired. The library keeps a channel for each watch that was asked for until it
// fires, so those that are interested in a node share one: a program that tries again and again while a lock is held must
// not pile them up.
type watches struct {
	sync.Mutex
	changed map[string]chan struct{} // by path; closed when the watch fires
	group   sync.WaitGroup
	isShut  bool // none is added after it is set
}

// armed is the watch of a path that has not fired, or nil.
func (s *session) armed(path string) <-chan struct{} {
	s.watches.Lock()
	defer s.watches.Unlock()
	return s.watches.changed[path]
}

// arm keeps a watch. Its channel is closed when it fires or the session is over.
func (s *session) arm(path string, events <-chan zk.Event) <-chan struct{} {
	changed := make(chan struct{})
	s.watches.Lock()
	defer s.watches.Unlock()
	if s.watches.isShut {
		close(changed)
		return changed
	}
	s.watches.changed[path] = changed
	s.watches.group.Go(func() {
		select {
		case <-events:
		case <-s.over().Done():
		}
		s.disarm(path, changed)
	})
	return changed
}

// disarm ends a watch, unless another has taken its place in the table already: then only the watch itself.
func (s *session) disarm(path string, changed chan struct{}) {
	s.watches.Lock()
	defer s.watches.Unlock()
	if s.watches.changed[path] == changed {
		delete(s.watches.changed, path)
	}
	close(changed)
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

// keepWatch tells when the node of a lock is deleted. It fails when the session is over by now: no lock is granted to a dead session.
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
