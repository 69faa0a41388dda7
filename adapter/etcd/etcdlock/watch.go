package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// lookAgainAfter bounds how long a waiter trusts its watch: a connection that has died without a word delivers nothing, and a
// client without keepalives does not notice.
const lookAgainAfter = 10 * time.Second

// awaitDeletion returns when the key may have been deleted after the revision, when it is time to look again, or when ctx is done. A watch
// that fails costs a pause, so that looking again is not done in a hurry.
func (b *backend) awaitDeletion(ctx context.Context, key string, after int64) {
	ctx, cancel := context.WithTimeout(ctx, max(lookAgainAfter, b.cfg.TTL))
	defer cancel()
	if err := b.deletion(ctx, key, after); err != nil {
		backoff := lease.Backoff{Base: 200 * time.Millisecond}
		pause(ctx, backoff.Next())
	}
}

// deletion waits for the deletion of the key after the revision. The watch ends with an error when the member that serves it has
// lost its leader, and when the revision is compacted away.
func (b *backend) deletion(ctx context.Context, key string, after int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx)) // the watch ends with it
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

// watchOver tells when the key of a lock is deleted that was there at the revision, until the claim is dropped or its session ends.
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

// awaitOwnEnd reports whether the key was deleted; false: ctx is done. When a watch fails it reads the key, as the deletion may be among
// what was missed.
func (k *claim) awaitOwnEnd(ctx context.Context, revision int64) bool {
	backoff := lease.Backoff{}
	for ctx.Err() == nil {
		if k.backend.deletion(ctx, k.key, revision) == nil {
			return true
		}
		pause(ctx, backoff.Next())
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
