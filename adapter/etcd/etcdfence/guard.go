package etcdfence

import (
	"context"
	"fmt"
	"io/fs"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// MaxValueBytes bounds a value: it leaves room for the keys in a request, which etcd limits to 1.5
// MiB by default.
const MaxValueBytes = 1 << 20

// A Guard keeps guarded resources in etcd. It is safe for concurrent use, also together with other
// Guards in this process and in others. It needs no Close.
//
// For a refusal, [fence.Refused] is true. [lockstep.ErrUnavailable] and [lockstep.ErrQuota] mean
// that nothing was written. [lockstep.ErrUncertain] means that a step was sent and no answer came:
// repeat it with the same token to learn the outcome. etcd clients do not give up on their own:
// bound each call with its context.
type Guard struct {
	cli *clientv3.Client
	cfg Config
}

var (
	_ fence.Guard    = (*Guard)(nil)
	_ fence.Resetter = (*Guard)(nil)
)

// New creates a Guard on the caller's client. New sends nothing. Its errors are
// [lockstep.ErrInvalid] and name the field.
func New(cli *clientv3.Client, cfg Config) (*Guard, error) {
	if cli == nil {
		return nil, fmt.Errorf("etcdfence: %w", &lockstep.InvalidError{Field: "client", Rule: "must not be nil"})
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("etcdfence: %w", err)
	}
	return &Guard{cli: cli, cfg: cfg}, nil
}

// Enter raises the mark to the grant's token and changes no data. Call it before the first read of
// a grant.
func (g *Guard) Enter(ctx context.Context, resource string, grant fence.Grant) error {
	return g.Admit(ctx, resource, grant, fence.Enter)
}

// Admit implements [fence.Guard]: it only raises the mark.
func (g *Guard) Admit(ctx context.Context, resource string, grant fence.Grant, s fence.Step) error {
	return g.step(ctx, resource, grant, s, nil)
}

// Write replaces the value.
func (g *Guard) Write(ctx context.Context, resource string, grant fence.Grant, value []byte) error {
	return g.put(ctx, resource, grant, fence.Write, value)
}

// WriteOnce replaces the value unless the grant has already written here, in which case it returns
// [fence.ErrAlready].
func (g *Guard) WriteOnce(ctx context.Context, resource string, grant fence.Grant, value []byte) error {
	return g.put(ctx, resource, grant, fence.WriteOnce, value)
}

func (g *Guard) put(ctx context.Context, resource string, grant fence.Grant, s fence.Step, value []byte) error {
	if len(value) > MaxValueBytes {
		err := &lockstep.InvalidError{Field: "value", Rule: fmt.Sprintf("is %d bytes long, the limit is %d", len(value), MaxValueBytes)}
		return named(s.String(), resource, err)
	}
	return g.step(ctx, resource, grant, s, []clientv3.Op{clientv3.OpPut(g.DataKey(resource), string(value))})
}

// Delete removes the value and keeps the mark, so that an older holder cannot bring it back. It
// counts as a write. Deleting a missing value is not an error.
func (g *Guard) Delete(ctx context.Context, resource string, grant fence.Grant) error {
	return g.step(ctx, resource, grant, fence.Write, []clientv3.Op{clientv3.OpDelete(g.DataKey(resource))})
}

// step takes one step and notifies the Observer.
func (g *Guard) step(ctx context.Context, resource string, grant fence.Grant, s fence.Step, ops []clientv3.Op) error {
	err := g.decide(ctx, resource, grant, s, ops)
	fence.Tell(g.cfg.Observer, resource, grant, s, err)
	return named(s.String(), resource, err)
}

func (g *Guard) decide(ctx context.Context, resource string, grant fence.Grant, s fence.Step, ops []clientv3.Op) error {
	if err := fence.CheckResource(resource); err != nil {
		return err
	}
	first, err := fence.Mark{}.Admit(grant, s)
	if err != nil { // no mark would admit this
		return err
	}
	k := keysOf(g.cfg.Prefix, resource)
	// A mark never disappears, so the third transaction decides at the latest.
	for range 3 {
		seen, done, err := g.commit(ctx, k, conditions(k, grant, s), slices.Concat(raising(k, grant, s), ops))
		if err != nil || done {
			return err
		}
		if seen.Bound() {
			return refusal(seen, grant, s)
		}
		if _, done, err = g.commit(ctx, k, absent(k), slices.Concat(storing(k, first), ops)); err != nil || done {
			return err
		}
	}
	return fmt.Errorf("%w: its mark comes and goes", fence.ErrBusy)
}

// refusal returns the rule's verdict on a step that etcd refused.
func refusal(seen fence.Mark, grant fence.Grant, s fence.Step) error {
	if _, err := seen.Admit(grant, s); err != nil {
		return err
	}
	return fmt.Errorf("%w: etcd refuses what the rule admits: mark %+v, grant %+v, %v", errNoMark, seen, grant, s)
}

// commit runs one transaction. If its conditions do not hold, it returns the mark.
func (g *Guard) commit(ctx context.Context, k keys, when []clientv3.Cmp, ops []clientv3.Op) (seen fence.Mark, done bool, err error) {
	if ctx.Err() != nil {
		return fence.Mark{}, false, ctx.Err() // while it is certain that nothing was sent
	}
	answer, err := g.cli.Txn(ctx).If(when...).Then(ops...).Else(looking(k)...).Commit()
	if err != nil {
		return fence.Mark{}, false, outcome(err)
	}
	if answer.Succeeded {
		return fence.Mark{}, true, nil
	}
	seen, _, err = look(answer.Responses)
	return seen, false, err
}

// looking reads the keys of a mark at one revision.
func looking(k keys) []clientv3.Op {
	return []clientv3.Op{clientv3.OpGet(k.mark), clientv3.OpGet(k.written)}
}

// look parses the responses to looking: the mark, and the revisions at which its keys were last
// written, zero if never.
func look(answers []*pb.ResponseOp) (m fence.Mark, at [2]int64, err error) {
	var values [2]string
	found := 0
	for i := range values {
		for _, kv := range answers[i].GetResponseRange().Kvs {
			values[i], at[i] = string(kv.Value), kv.ModRevision
			found++
		}
	}
	m, err = parse(values[0], values[1], found)
	return m, at, err
}

// Read returns the latest value, or an error that wraps [fs.ErrNotExist] if there is none.
func (g *Guard) Read(ctx context.Context, resource string) ([]byte, error) {
	if err := fence.CheckResource(resource); err != nil {
		return nil, named("read", resource, err)
	}
	answer, err := g.cli.Get(ctx, g.DataKey(resource))
	switch {
	case err != nil:
		return nil, named("read", resource, unavailable(err))
	case len(answer.Kvs) == 0:
		return nil, named("read", resource, fs.ErrNotExist)
	}
	return answer.Kvs[0].Value, nil
}

// DataKey is the key of the resource's value.
func (g *Guard) DataKey(resource string) string { return keysOf(g.cfg.Prefix, resource).data }

func named(what, resource string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("etcdfence: %s %s: %w", what, lockstep.Excerpt(resource), err)
}
