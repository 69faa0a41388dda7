package zklock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// enter lets a call in unless the session is shut.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.isShut {
		s.mu.calls.Add(1)
	}
	return !s.mu.isShut
}

// A reply is what a call of the library returned.
type reply[T any] struct {
	value T
	err   error
}

// call makes one request. The library takes no context and waits for an answer as long as the
// connection lives: a call that ctx or the end of the session ends earlier is left behind, and its
// request may still be sent.
func call[T any](ctx context.Context, s *session, request func(*zk.Conn) (T, error)) (none T, err error) {
	if !s.enter() {
		return none, s.cause()
	}
	replies := make(chan reply[T], 1)
	go func() {
		defer s.mu.calls.Done()
		connection, sent := s.wire.evidence.present(), s.clock.Now()
		value, err := request(s.conn)
		if !isBroken(err) { // each answered request is a sign of life
			s.wire.evidence.beat(connection, beat{sent, s.clock.Now()})
		}
		replies <- reply[T]{value, explain(err)}
	}()
	select {
	case r := <-replies:
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-s.over().Done():
		return none, s.cause()
	}
}

// cause says why the session is over.
func (s *session) cause() error {
	if cause := context.Cause(s.over()); cause != nil {
		return cause
	}
	return lockstep.ErrClosed
}

// retry makes a request that does no harm when it is made twice, until it is answered, ctx is done
// or the session is over.
func retry[T any](ctx context.Context, s *session, request func(*zk.Conn) (T, error)) (T, error) {
	backoff := s.backoff()
	for {
		value, err := call(ctx, s, request)
		if !isBroken(err) {
			return value, err
		}
		if err := s.pause(ctx, backoff.Next()); err != nil {
			return value, err
		}
	}
}

// backoff is for requests that wait for a connection.
func (s *session) backoff() lease.Backoff {
	return lease.Backoff{Base: 10 * time.Millisecond, Max: max(s.timing.timeout/24, 20*time.Millisecond)}
}

// pause returns an error when ctx or the session ends first.
func (s *session) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.over().Done():
		return s.cause()
	}
}

// create makes a node without data. One that is there already is good.
func (s *session) create(ctx context.Context, path string, flag int32) error {
	_, err := retry(ctx, s, func(conn *zk.Conn) (string, error) {
		if flag == zk.FlagContainer {
			return conn.CreateContainer(path, nil, flag, s.cfg.ACL)
		}
		return conn.Create(path, nil, flag, s.cfg.ACL)
	})
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// createAll makes a node and those above it.
func (s *session) createAll(ctx context.Context, path string) error {
	for i := range path {
		if i == 0 || path[i] != '/' {
			continue
		}
		if err := s.create(ctx, path[:i], zk.FlagPersistent); err != nil {
			return err
		}
	}
	return s.create(ctx, path, zk.FlagPersistent)
}

// createDir makes the directory of a lock.
func (s *session) createDir(ctx context.Context, dir string) error {
	err := s.create(ctx, dir, zk.FlagContainer)
	if !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	if err := s.createAll(ctx, dir[:strings.LastIndexByte(dir, '/')]); err != nil {
		return err
	}
	return s.create(ctx, dir, zk.FlagContainer)
}

// A listing is the nodes in the directory of a lock at one moment.
type listing struct {
	nodes queue
	stat  *zk.Stat // of the directory; nil when there is none
}

// list reads the directory of a lock. It may be as old as the session's last request: see sync.
func (s *session) list(ctx context.Context, dir string) (listing, error) {
	l, err := retry(ctx, s, func(conn *zk.Conn) (listing, error) {
		names, stat, err := conn.Children(dir)
		return listing{parseQueue(names), stat}, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return listing{}, nil
	}
	return l, err
}

// sync lets the server catch up with all that was done before.
func (s *session) sync(ctx context.Context, path string) error {
	_, err := retry(ctx, s, func(conn *zk.Conn) (string, error) { return conn.Sync(path) })
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// A content is what a node holds, and a channel that is closed when that or the node changes.
type content struct {
	record  record
	stat    *zk.Stat
	changed <-chan struct{}
}

// read reads a node.
func (s *session) read(ctx context.Context, path string) (content, error) {
	return retry(ctx, s, func(conn *zk.Conn) (content, error) {
		data, stat, err := conn.Get(path)
		return content{parseRecord(data), stat, nil}, err
	})
}

// watch reads a node, and tells when it changes next. A node that does not exist leaves no watch
// behind.
func (s *session) watch(ctx context.Context, path string) (content, error) {
	if changed := s.armed(path); changed != nil {
		c, err := s.read(ctx, path)
		c.changed = changed
		return c, err
	}
	return retry(ctx, s, func(conn *zk.Conn) (content, error) {
		data, stat, events, err := conn.GetW(path)
		if err != nil {
			return content{}, err
		}
		return content{parseRecord(data), stat, s.arm(path, events)}, nil
	})
}

// watchDir tells when a claim comes to the directory of a lock, or goes.
func (s *session) watchDir(ctx context.Context, dir string) (<-chan struct{}, error) {
	if changed := s.armed(dir); changed != nil {
		return changed, nil
	}
	return retry(ctx, s, func(conn *zk.Conn) (<-chan struct{}, error) {
		for {
			_, _, events, err := conn.ChildrenW(dir)
			if errors.Is(err, zk.ErrNoNode) { // tell when the directory is made
				var exists bool
				exists, _, events, err = conn.ExistsW(dir)
				if exists && err == nil {
					continue // just now
				}
			}
			if err != nil {
				return nil, err
			}
			return s.arm(dir, events), nil
		}
	})
}
