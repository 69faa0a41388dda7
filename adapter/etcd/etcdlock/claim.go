package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// A claim is one claim under one session, from the creation of its key to its deletion. One
// goroutine takes it; drop is called later, when take has ended.
type claim struct {
	*locker.Claim
	backend *backend
	session *session
	key     string
	text    record // the value of the key
	created int64  // the create revision of the key; zero until it is known to exist

	// doubtful is set when a creation was not answered: it may take effect at any time until the
	// generation of the session is raised.
	doubtful bool
	// unwatch ends the watch on the key of a held lock. Nil: there is none.
	unwatch context.CancelFunc
}

func newClaim(b *backend, s *session, c *locker.Claim) *claim {
	return &claim{
		Claim: c, backend: b, session: s,
		key:  b.cfg.key(c.Names[0], c.Mode, c.ID),
		text: record{Since: time.Now().UTC(), Metadata: c.Metadata},
	}
}

// take creates the key, waits until it is the claim's turn, and returns the grant.
func (k *claim) take(ctx context.Context) (locker.Grant, error) {
	ctx, cancel := k.session.bind(ctx)
	defer cancel()
	token, revision, err := k.wait(ctx)
	if err == nil {
		err = k.session.lease.Check()
	}
	if err == nil && token > lockstep.MaxToken {
		err = fmt.Errorf("%w: revision %d is larger than any token may be", lockstep.ErrQuota, token)
	}
	if loss, ok := errors.AsType[*lockstep.LossError](err); ok && loss.Reason == lockstep.SessionExpired {
		k.session.lease.End(loss) // etcd knows better than our clock
	}
	if err != nil {
		return locker.Grant{}, k.failed(ctx, err)
	}
	return locker.Grant{
		Token: token, Owner: k.session.owner(),
		Lease: k.session.lease, Gone: k.watchOver(revision),
	}, nil
}

// failed returns the error for Take. If the claim may have left a key, the error says that it must
// be dropped.
func (k *claim) failed(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, lockstep.ErrLost), k.absent() && isCertain(err):
		return err
	case k.absent(): // it did not get that far
		return unavailable(err)
	case k.Try() && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", lockstep.ErrUncertain, err)
	case k.created != 0 && waitRanOut(ctx):
		return fmt.Errorf("%w: %w", locker.ErrQueued, k.busy(err))
	default:
		return fmt.Errorf("%w: %w", locker.ErrQueued, err)
	}
}

// waitRanOut reports whether ctx has ended because the wait of the claim was over. The Locker has
// its own cause for that.
func waitRanOut(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return cause != nil && !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) &&
		!errors.Is(cause, lockstep.ErrClosed)
}

// busy says who is ahead of a claim whose wait ran out, if etcd answers soon.
func (k *claim) busy(err error) error {
	ctx, cancel := context.WithTimeout(k.backend.work, 500*time.Millisecond)
	defer cancel()
	q, _, listErr := k.backend.list(ctx, k.Names[0])
	own := slices.IndexFunc(q, func(e entry) bool { return e.key == k.key })
	if listErr != nil || own < 0 {
		return err
	}
	return q[:own].busy(own)
}

// absent reports whether it is certain that no key of this claim is or will be in etcd.
func (k *claim) absent() bool { return k.created == 0 && !k.doubtful }

// wait returns the token when the lock is granted, and the revision at which that was so.
func (k *claim) wait(ctx context.Context) (token lockstep.Token, revision int64, err error) {
	v, err := k.create(ctx)
	for err == nil && v.token == 0 {
		if v.ahead != "" {
			k.backend.awaitDeletion(ctx, v.ahead, v.revision)
			v, err = k.look(ctx)
		} else {
			v, err = k.join(ctx, v)
		}
	}
	return v.token, v.revision, err
}

// drop deletes the claim's key and no other. After a creation in doubt it also raises the
// generation of the session, so that the key cannot appear later.
func (k *claim) drop(ctx context.Context) error {
	if k.unwatch != nil {
		k.unwatch()
	}
	if k.absent() {
		return &lockstep.LossError{Reason: lockstep.RecordMissing, Detail: "its key was never made"}
	}
	return k.backend.leaving.do(ctx, func() error { return k.delete(ctx) })
}

func (k *claim) delete(ctx context.Context) error {
	var always []clientv3.Op
	if k.doubtful {
		always = append(always, clientv3.OpPut(k.session.key, "", clientv3.WithLease(k.session.id)))
	}
	answer, err := k.backend.cli.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(k.key), ">", 0)).
		Then(append(always, clientv3.OpDelete(k.key))...).
		Else(always...).
		Commit()
	if err != nil {
		err, _ = translate(err) // without the lease there is no key
		return err
	}
	if k.doubtful {
		k.session.raise(answer.Header.Revision)
	}
	if !answer.Succeeded {
		return &lockstep.LossError{Reason: lockstep.RecordMissing, Detail: "its key is gone"}
	}
	return nil
}
