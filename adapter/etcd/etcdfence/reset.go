package etcdfence

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep/fence"
)

// Mark returns the current mark, which is zero if no grant has reached the resource.
func (g *Guard) Mark(ctx context.Context, resource string) (fence.Mark, error) {
	m, _, err := g.present(ctx, resource)
	return m, named("read mark of", resource, err)
}

func (g *Guard) present(ctx context.Context, resource string) (m fence.Mark, at [2]int64, err error) {
	if err := fence.CheckResource(resource); err != nil {
		return m, at, err
	}
	answer, err := g.cli.Txn(ctx).Then(looking(keysOf(g.cfg.Prefix, resource))...).Commit()
	if err != nil {
		return m, at, unavailable(err)
	}
	return look(answer.Responses)
}

// Reset gives the resource to another lock or backend, as [fence.Mark.Reset] defines. The data
// stays. It takes two round trips and returns [fence.ErrMoved] if a step comes in between, or if
// Reset is repeated after a lost reply and the first attempt took effect.
func (g *Guard) Reset(ctx context.Context, resource string, from, to fence.Mark) error {
	return named("reset", resource, g.reset(ctx, resource, from, to))
}

func (g *Guard) reset(ctx context.Context, resource string, from, to fence.Mark) error {
	present, at, err := g.present(ctx, resource)
	if err != nil {
		return err
	}
	next, err := present.Reset(from, to)
	if err != nil {
		return err
	}
	k := keysOf(g.cfg.Prefix, resource)
	unchanged := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(k.mark), "=", at[0]),
		clientv3.Compare(clientv3.ModRevision(k.written), "=", at[1]),
	}
	seen, done, err := g.commit(ctx, k, unchanged, storing(k, next))
	if err != nil || done {
		return err
	}
	return fmt.Errorf("%w: a writer is at work, the token is %d now", fence.ErrMoved, seen.Token)
}
