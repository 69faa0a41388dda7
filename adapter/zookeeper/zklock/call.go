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

// enter admits a call unless the session is shut.
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
// connection lives: a call cut short by ctx or the end of the session is abandoned, and its request
// may still be sent.
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

// cause returns why the session is over.
func (s *session) cause() error {
	if cause := context.Cause(s.over()); cause != nil {
		return cause
	}
	return lockstep.ErrClosed
}

// retry repeats an idempotent request until it is answered, ctx is done or the session is over.
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

// backoff is the backoff of requests that wait for a connection.
func (s *session) backoff() lease.Backoff {
	return lease.Backoff{Base: 10 * time.Millisecond, Max: max(s.timing.timeout/24, 20*time.Millisecond)}
}

// pause waits for d, and returns an error if ctx or the session ends first.
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

// create creates a node without data. It may already exist.
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

// createAll creates a node and its parents.
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

// createDir creates the directory of a lock.
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

// A listing holds the nodes in the directory of a lock at one moment.
type listing struct {
	nodes queue
	stat  *zk.Stat // of the directory; nil if there is none
}

// list reads the directory of a lock. The result may be as old as the session's last request: see
// sync.
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

// sync lets the server catch up with everything done before.
func (s *session) sync(ctx context.Context, path string) error {
	_, err := retry(ctx, s, func(conn *zk.Conn) (string, error) { return conn.Sync(path) })
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// A content is the data of a node, and a channel that is closed when the node or its data changes.
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

// watch reads a node, and reports its next change. A node that does not exist leaves no watch
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

// watchDir reports when a claim enters or leaves the directory of a lock.
func (s *session) watchDir(ctx context.Context, dir string) (<-chan struct{}, error) {
	if changed := s.armed(dir); changed != nil {
		return changed, nil
	}
	return retry(ctx, s, func(conn *zk.Conn) (<-chan struct{}, error) {
		for {
			_, _, events, err := conn.ChildrenW(dir)
			if errors.Is(err, zk.ErrNoNode) { // report when the directory is created
				var exists bool
				exists, _, events, err = conn.ExistsW(dir)
				if exists && err == nil {
					continue // created just now
				}
			}
			if err != nil {
				return nil, err
			}
			return s.arm(dir, events), nil
		}
	})
}
