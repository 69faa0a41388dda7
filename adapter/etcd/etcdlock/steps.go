package etcdlock

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep"
)

// The steps of a claim: each is one transaction, and may be repeated if its answer was lost.

// A view is a claim's view of its lock at one revision. Exactly one of ahead and token is set, or
// neither.
type view struct {
	revision int64
	ahead    string         // the key to wait for; empty: the lock is granted
	token    lockstep.Token // of the grant; zero if a shared claim must first join others
	first    entry          // the first shared claim, whose token all share; unused for an exclusive claim
}

// create creates the key and returns what is ahead of it. It retries until it gets an answer.
//
// A try creates the key only if nothing is ahead. So no one ever waits for a claim that is not
// itself waiting.
func (k *claim) create(ctx context.Context) (v view, err error) {
	err = k.backend.entering.do(ctx, func() error {
		return k.backend.persist(ctx, func(ctx context.Context) error {
			v, err = k.createOnce(ctx)
			return err
		})
	})
	return v, err
}

func (k *claim) createOnce(ctx context.Context) (view, error) {
	s := k.session
	generation := s.generation.Load()
	conditions := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(s.key), "=", generation),
		clientv3.Compare(clientv3.CreateRevision(k.key), "=", 0),
	}
	otherwise := []clientv3.Op{clientv3.OpGet(s.key), clientv3.OpGet(k.key)}
	if k.Try() {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(k.contested()).WithPrefix(), "=", 0))
		otherwise = append(otherwise, listing(k.root(), maxShown))
	}
	answer, err := k.backend.cli.Txn(ctx).If(conditions...).Then(k.creating()...).Else(otherwise...).Commit()
	switch {
	case err != nil:
		_, refused := translate(err)
		k.doubtful = k.doubtful || !refused
		return view{}, err
	case answer.Succeeded:
		return k.readCreated(ctx, answer)
	default:
		return k.notCreated(ctx, generation, answer)
	}
}

// creating creates the key and counts the keys, which shows whether the claim is alone. Counting is
// cheap. Reading who is ahead takes time that grows with the queue, and in a transaction all
// members would do it, one after the other.
func (k *claim) creating() []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpPut(k.key, k.text.encode(), clientv3.WithLease(k.session.id)),
		clientv3.OpGet(k.root(), clientv3.WithPrefix(), clientv3.WithCountOnly()),
	}
}

// readCreated grants the lock to a claim that is alone; otherwise the claim has to look.
func (k *claim) readCreated(ctx context.Context, answer *clientv3.TxnResponse) (view, error) {
	k.created = answer.Header.Revision
	if answer.Responses[1].GetResponseRange().Count == 1 {
		return view{revision: k.created, token: lockstep.Token(k.created)}, nil
	}
	return k.lookOnce(ctx)
}

// errAgain makes persist retry.
var errAgain = errors.New("etcdlock: another claim of the session was undone meanwhile")

// notCreated finds out which condition of the creation did not hold.
func (k *claim) notCreated(ctx context.Context, generation int64, answer *clientv3.TxnResponse) (view, error) {
	session, own := answer.Responses[0].GetResponseRange().Kvs, answer.Responses[1].GetResponseRange().Kvs
	switch {
	case len(session) == 0:
		return view{}, &lockstep.LossError{Reason: lockstep.SessionExpired, Detail: "the key of the session is gone"}
	case len(own) != 0: // an earlier creation worked but its answer was lost
		k.created = own[0].CreateRevision
		return k.lookOnce(ctx)
	case session[0].ModRevision != generation:
		k.session.raise(session[0].ModRevision)
		return view{}, errAgain
	default: // it is a try, and others are ahead
		found := answer.Responses[2].GetResponseRange()
		return view{}, readQueue(k.root(), found.Kvs).busy(int(found.Count))
	}
}

// look returns what is currently ahead of the key. It retries until it gets an answer.
func (k *claim) look(ctx context.Context) (v view, err error) {
	err = k.backend.persist(ctx, func(ctx context.Context) error {
		v, err = k.lookOnce(ctx)
		return err
	})
	return v, err
}

// lookOnce reads on condition that the key still exists and is attached to the lease. A lease that
// ends removes its keys in the same revision, so a claim whose session has ended is never granted.
func (k *claim) lookOnce(ctx context.Context) (view, error) {
	answer, err := k.backend.cli.Txn(ctx).If(k.lives()...).Then(k.looking()...).Commit()
	switch {
	case err != nil:
		return view{}, err
	case !answer.Succeeded:
		return view{}, &lockstep.LossError{Reason: lockstep.RecordMissing, Detail: "its key is gone, or is attached to its lease no more"}
	default:
		return k.read(answer.Header.Revision, answer.Responses), nil
	}
}

func (k *claim) lives() []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(k.key), "=", k.created),
		clientv3.Compare(clientv3.LeaseValue(k.key), "=", k.session.id),
	}
}

// join gives a shared claim that joins others their token: it writes the token of the first into
// its own key, on condition that the first has not changed. If it has, or the answer is lost, it
// looks again.
//
// Two that join at the same time agree, because the first of all claims at a revision either has a
// token in its key, or will always be the first and its token is its create revision.
func (k *claim) join(ctx context.Context, v view) (view, error) {
	text := k.text
	text.Token = v.first.token()
	var answer *clientv3.TxnResponse
	err := k.backend.once(ctx, func(ctx context.Context) (err error) {
		answer, err = k.backend.cli.Txn(ctx).
			If(append(k.lives(), clientv3.Compare(clientv3.ModRevision(v.first.key), "=", v.first.modified))...).
			Then(clientv3.OpPut(k.key, text.encode(), clientv3.WithLease(k.session.id))).
			Commit()
		return err
	})
	if err == nil && answer.Succeeded {
		return view{revision: answer.Header.Revision, token: text.Token}, nil
	}
	return k.look(ctx)
}

// looking reads what decides about the claim: the last earlier claim that blocks it and, for a
// shared one, the first shared claim and its own key.
func (k *claim) looking() []clientv3.Op {
	ahead := []clientv3.OpOption{
		clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(2), // one may be the claim itself
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend),
		clientv3.WithMaxCreateRev(k.created),
	}
	if k.Mode != lockstep.Shared {
		return []clientv3.Op{clientv3.OpGet(k.contested(), ahead...)}
	}
	return []clientv3.Op{
		clientv3.OpGet(k.contested(), ahead...),
		listing(k.backend.cfg.shareds(k.Names[0]), 1),
		clientv3.OpGet(k.key),
	}
}

// read makes a view from the responses to looking.
func (k *claim) read(revision int64, answers []*etcdserverpb.ResponseOp) view {
	v := view{revision: revision}
	for _, kv := range answers[0].GetResponseRange().Kvs {
		if string(kv.Key) != k.key {
			v.ahead = string(kv.Key)
			return v
		}
	}
	if k.Mode != lockstep.Shared {
		v.token = lockstep.Token(k.created)
		return v
	}
	firsts := readQueue(k.root(), answers[1].GetResponseRange().Kvs)
	own := readQueue(k.root(), answers[2].GetResponseRange().Kvs)
	if v.first = firsts[0]; v.first.key == k.key || own[0].record.Token != 0 {
		v.token = own[0].token()
	}
	return v
}

// contested is the prefix of the keys that can block the claim: those of all claims or, for a
// shared one, those of the exclusive ones.
func (k *claim) contested() string {
	if k.Mode == lockstep.Shared {
		return k.backend.cfg.exclusives(k.Names[0])
	}
	return k.root()
}

func (k *claim) root() string { return k.backend.cfg.root(k.Names[0]) }
