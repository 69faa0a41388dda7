package client

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// watchLook is the longest time between two reads of a watched lock. Any node serves the event
// stream, even one that is cut off from the others and receives nothing; only the majority can
// answer a read.
const watchLook = 5 * time.Second

// Watch implements [lockstep.Watcher]. It listens to the events of the name and reads the state
// after each one. It subscribes before it reads, so there is no gap between the two. Each state is
// what the majority had agreed on by then and is never older than the one before, unless a restore
// has replaced the cluster. Changes that come faster than they are read are yielded as one. At most
// 1,000 holders and 100 waiters are shown.
//
// It needs no session. Lost connections and changes of leader do not end it. If no node has served
// for [Config.UnavailableAfter] it ends with [lockstep.ErrUnavailable], and after Close with
// [lockstep.ErrClosed].
func (c *Client) Watch(ctx context.Context, name string) iter.Seq2[lockstep.State, error] {
	return func(yield func(lockstep.State, error) bool) {
		err := lockstep.CheckName(name)
		if err == nil {
			err = c.watchLock(ctx, name, func(l *pb.Lock) bool { return yield(stateOf(name, l), nil) })
		}
		if err == nil {
			return
		}
		if reading, ok := errors.AsType[*lockstep.OpError](err); ok {
			err = reading.Err // one operation name is enough
		}
		yield(lockstep.State{}, &lockstep.OpError{Op: "watch", Lock: name, Err: err})
	}
}

// watchLock shows each state until show returns false or ctx is done; then it returns nil. Its one
// goroutine, the listener, has ended when it returns.
func (c *Client) watchLock(ctx context.Context, name string, show func(*pb.Lock) bool) error {
	own, cancel := context.WithCancelCause(ctx)
	var listening sync.WaitGroup
	defer listening.Wait()
	defer cancel(context.Canceled) // deferred, as show may panic
	defer context.AfterFunc(c.life, func() { cancel(lockstep.ErrClosed) })()
	changed := make(chan struct{}, 1) // 1 token: a state not read yet
	listening.Go(func() { cancel(c.listen(own, name, func() { wake(changed) })) })
	err := c.showChanges(own, name, changed, show)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// listen calls changed when events of the name may have arrived, and at the start of each stream,
// until ctx is done or no node serves.
func (c *Client) listen(ctx context.Context, name string, changed func()) error {
	for {
		w := newWatch(c.admin, name, Position{}, func(e *pb.Event, err error) bool {
			if e.GetName() == name || err != nil { // the history has changed
				changed()
			}
			return true
		})
		w.began = changed
		err := w.follow(ctx)
		forgotten := w.exact && errors.Is(err, lockstep.ErrInvalid) && !errors.Is(err, ErrTwoClusters)
		if !forgotten {
			return err
		}
		// The events in between are gone, but not their effects: a new stream begins with a read.
	}
}

// showChanges reads the lock whenever it may have changed, and shows it if it has.
func (c *Client) showChanges(ctx context.Context, name string, changed <-chan struct{}, show func(*pb.Lock) bool) error {
	look := time.NewTicker(watchLook)
	defer look.Stop()
	var last *pb.Lock
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-look.C:
		}
		now, err := c.admin.Lock(ctx, name, 0)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case last != nil && sameButNext(now, last):
			continue
		case !show(now):
			return nil
		}
		last = now
	}
}

// sameButNext ignores the next token, which rises with the grants of all other names.
func sameButNext(a, b *pb.Lock) bool {
	a = proto.CloneOf(a)
	a.NextToken = b.GetNextToken()
	return proto.Equal(a, b)
}
