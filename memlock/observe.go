package memlock

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"slices"

	"github.com/lockstep-dev/lockstep"
)

// Inspect implements [lockstep.Inspector].
func (l *Locker) Inspect(ctx context.Context, name string) (lockstep.State, error) {
	ended := ctx.Err() // checked before locking: the ctx of lockstep.Do checks a lock of this space
	s := l.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := l.canReadLocked(ended, name); err != nil {
		return lockstep.State{}, &lockstep.OpError{Op: "inspect", Lock: name, Err: err}
	}
	return s.table.inspect(name), nil
}

func (l *Locker) canReadLocked(ended error, name string) error {
	switch {
	case lockstep.CheckName(name) != nil:
		return lockstep.CheckName(name)
	case ended != nil:
		return ended
	case l.isClosed():
		return lockstep.ErrClosed
	case l.cut != nil:
		return lockstep.ErrUnavailable
	default:
		return nil
	}
}

// Watch implements [lockstep.Watcher]. If changes come faster than the caller reads, it yields only
// the last one. While the Locker is cut off it yields nothing.
func (l *Locker) Watch(ctx context.Context, name string) iter.Seq2[lockstep.State, error] {
	return func(yield func(lockstep.State, error) bool) {
		if err := lockstep.CheckName(name); err != nil {
			yield(lockstep.State{}, &lockstep.OpError{Op: "watch", Lock: name, Err: err})
			return
		}
		wake := l.space.watch(name)
		defer l.space.unwatch(name, wake)
		for {
			select {
			case <-ctx.Done():
				return
			case <-l.closed:
				yield(lockstep.State{}, &lockstep.OpError{Op: "watch", Lock: name, Err: lockstep.ErrClosed})
				return
			case <-wake:
			}
			if state, ok := l.look(name); ok && !yield(state, nil) {
				return
			}
		}
	}
}

// look reads the state of a name unless the Locker is cut off, in which case Heal wakes the
// watcher.
func (l *Locker) look(name string) (lockstep.State, bool) {
	s := l.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.cut != nil {
		if !slices.Contains(l.missed, name) {
			l.missed = append(l.missed, name)
		}
		return lockstep.State{}, false
	}
	return s.table.inspect(name), true
}

// watch returns a channel that receives a value when the name changes. It already holds one.
func (s *Space) watch(name string) chan struct{} {
	wake := make(chan struct{}, 1)
	wake <- struct{}{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[name] = append(s.watches[name], wake)
	return wake
}

func (s *Space) unwatch(name string, wake chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := slices.DeleteFunc(s.watches[name], func(other chan struct{}) bool { return other == wake })
	if len(rest) == 0 {
		delete(s.watches, name)
		return
	}
	s.watches[name] = rest
}

// Detach implements [lockstep.Detacher]. Detaching a lock again yields the same handle.
func (l *Locker) Detach(_ context.Context, held lockstep.Lock) (lockstep.Handle, error) {
	k, ok := held.(*lock)
	if !ok || k.locker != l {
		return "", fmt.Errorf("%w: the lock does not belong to this Locker", lockstep.ErrInvalid)
	}
	s := l.space
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lapseLocked(k.claim.session)
	switch {
	case k.ctx.Err() != nil:
		return "", &lockstep.OpError{Op: "detach", Lock: k.Name(), Err: context.Cause(k.ctx)}
	case l.cut != nil:
		return "", &lockstep.OpError{Op: "detach", Lock: k.Name(), Err: lockstep.ErrUnavailable}
	}
	k.endLocked(lockstep.ErrDetached)
	c := k.claim
	c.session.drop(c)
	s.openLocked(nil).keep(c)
	s.stopRenewingLocked(c.session)
	if c.handle == "" {
		c.handle = lockstep.Handle("memory:" + rand.Text())
		s.detached[c.handle] = c
	}
	return c.handle, nil
}

// Attach implements [lockstep.Detacher]. It takes over a lock that is attached elsewhere in the
// space.
func (l *Locker) Attach(_ context.Context, h lockstep.Handle) (lockstep.Lock, error) {
	s := l.space
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.detached[h]
	switch {
	case l.isClosed():
		return nil, lockstep.ErrClosed
	case l.cut != nil:
		return nil, lockstep.ErrUnavailable
	case c == nil || c.state == outside:
		return nil, &lockstep.LossError{Reason: lockstep.RecordMissing, Detail: "no lock has this handle, or its lease has ended"}
	case c.state == closing:
		return nil, c.loss
	}
	if c.session.locker == nil {
		c.session.renewAgain()
	}
	c.lock.endLocked(lockstep.ErrDetached)
	c.session.drop(c)
	l.session.keep(c)
	c.lock = newLock(l, c)
	return c.lock, nil
}
