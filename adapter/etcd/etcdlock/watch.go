package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// awaitDeletion returns when the key may have been deleted after the revision, or when ctx is done.
// After a watch fails it pauses, so that the caller does not retry in a tight loop.
//
// Nothing arrives over a connection that died silently, and a client without keepalives does not
// notice. So the key is also read occasionally. If it is gone, later watches of this Locker use a
// new stream, which the client opens to another member.
func (b *backend) awaitDeletion(ctx context.Context, key string, after int64) {
	ctx, cancel := context.WithCancel(ctx) // ends the watch
	defer cancel()
	watched := make(chan error, 1)
	go func() { watched <- b.deletion(ctx, key, after) }()
	reread := time.NewTicker(b.rereadEvery(b.waiting.Add(1)))
	defer reread.Stop()
	defer b.waiting.Add(-1)
	for {
		select {
		case err := <-watched:
			if err != nil {
				backoff := lease.Backoff{Base: 200 * time.Millisecond}
				lease.Sleep(ctx, backoff.Next())
			}
			return
		case <-reread.C:
			if gone, err := b.isGone(ctx, key); err == nil && gone {
				b.stream.Add(1)
				cancel()
				<-watched
				return
			}
		}
	}
}

// rereadEvery is how often a waiter reads the key it waits for, given the number of waiters: at
// most every 2 s, and such that all waiters of a Locker together make at most 10 small reads per
// second.
func (b *backend) rereadEvery(waiting int64) time.Duration {
	return max(b.cfg.TTL/2, 2*time.Second, time.Duration(waiting)*100*time.Millisecond)
}

// isGone reports whether the key is gone.
func (b *backend) isGone(ctx context.Context, key string) (gone bool, err error) {
	err = b.once(ctx, func(ctx context.Context) error {
		answer, err := b.cli.Get(ctx, key, clientv3.WithCountOnly())
		gone = err == nil && answer.Count == 0
		return err
	})
	return gone, err
}

// deletion waits for the deletion of the key after the revision. The watch ends with an error when
// the member that serves it has lost its leader, and when the revision is compacted away.
func (b *backend) deletion(ctx context.Context, key string, after int64) error {
	ctx, cancel := context.WithCancel(b.onStream(ctx)) // ends the watch
	defer cancel()
	for answer := range b.cli.Watch(ctx, key, clientv3.WithRev(after+1), clientv3.WithFilterPut()) {
		if err := answer.Err(); err != nil {
			return err
		}
		if len(answer.Events) != 0 {
			return nil
		}
	}
	return cmp.Or(ctx.Err(), errWatchEnded)
}

var errWatchEnded = errors.New("etcdlock: the watch has ended")

// onStream is the context of a watch. The client has one stream for all watches whose contexts have
// the same metadata.
func (b *backend) onStream(ctx context.Context) context.Context {
	ctx = metadata.AppendToOutgoingContext(ctx, "lockstep-stream", strconv.FormatInt(b.stream.Load(), 10))
	return clientv3.WithRequireLeader(ctx)
}

// watchOver reports when the key of a lock, which existed at the revision, is deleted. It ends when
// the claim is dropped or its session ends.
func (k *claim) watchOver(revision int64) <-chan error {
	gone := make(chan error, 1)
	ctx, cancel := context.WithCancel(k.session.lease.Context())
	k.unwatch = cancel
	k.backend.group.Go(func() {
		defer cancel()
		if k.awaitOwnEnd(ctx, revision) {
			gone <- &lockstep.LossError{Reason: lockstep.RecordMissing, Detail: "its key was deleted, or its lease revoked"}
		}
	})
	return gone
}

// awaitOwnEnd reports whether the key was deleted; false means that ctx is done. If a watch fails
// it reads the key, since the deletion may have been missed.
func (k *claim) awaitOwnEnd(ctx context.Context, revision int64) bool {
	backoff := lease.Backoff{}
	for ctx.Err() == nil {
		if k.backend.deletion(ctx, k.key, revision) == nil {
			return true
		}
		lease.Sleep(ctx, backoff.Next())
		answer, err := k.backend.cli.Get(ctx, k.key, clientv3.WithKeysOnly())
		if err != nil {
			continue
		}
		if len(answer.Kvs) == 0 {
			return true
		}
		revision = answer.Header.Revision
	}
	return false
}
