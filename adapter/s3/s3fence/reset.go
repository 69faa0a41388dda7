package s3fence

import (
	"context"
	"crypto/rand"

	"github.com/lockstep-dev/lockstep/fence"
)

// Mark returns the current mark, which is zero if no grant has reached the resource.
func (g *Guard) Mark(ctx context.Context, resource string) (fence.Mark, error) {
	if err := CheckResource(resource); err != nil {
		return fence.Mark{}, named("read mark of", resource, err)
	}
	m, _, err := g.store.load(ctx, keysOf(g.cfg.Prefix, resource))
	return m.Mark, named("read mark of", resource, err)
}

// Reset gives the resource to another lock or backend, as [fence.Mark.Reset] defines. The data
// stays. If repeated after [lockstep.ErrUncertain], it returns [fence.ErrMoved] with the new lock's
// name if the first attempt took effect.
func (g *Guard) Reset(ctx context.Context, resource string, from, to fence.Mark) error {
	return named("reset", resource, g.reset(ctx, resource, from, to))
}

func (g *Guard) reset(ctx context.Context, resource string, from, to fence.Mark) error {
	if err := CheckResource(resource); err != nil {
		return err
	}
	nonce := rand.Text()
	return g.carryOut(ctx, plan{
		keys: keysOf(g.cfg.Prefix, resource), nonce: nonce,
		decide: func(now manifest) (manifest, []string, error) {
			mark, err := now.Mark.Reset(from, to)
			if err != nil {
				return now, nil, err
			}
			next, dead := now.after(mark, fence.Enter, change{}, nonce)
			return next, dead, nil
		},
	})
}
