package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockstep-dev/lockstep/lease"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// maxSweeps bounds the claims of one Locker that are swept at a time. Beyond it, records are left
// to expire.
const maxSweeps = 256

// undo deletes the claim's record, by compare-and-delete, on the nodes and, if t is not nil, counts
// which nodes had it. It returns the nodes that did not answer, and the errors.
func (b *backend) undo(ctx context.Context, c *locker.Claim, nodes []int, t *tally) (left []int, err error) {
	left = slices.Clone(nodes)
	if t == nil {
		t = &tally{count: len(b.nodes)}
	}
	poll(ctx, b, question[vote]{
		nodes: nodes,
		ask: func(ctx context.Context, n *node) vote {
			return newVote(n.yes(ctx, b.scripts.drop, []string{b.lockKey(c.Names[0])}, c.ID))
		},
		hear: func(a answer[vote]) bool {
			if a.value.err != nil {
				err = errors.Join(err, a.value.err)
				return false
			}
			left = slices.DeleteFunc(left, func(node int) bool { return node == a.node })
			t.hear(a.value.yes)
			return t.carried() || t.rejected()
		},
	})
	return left, err
}

// sweep keeps deleting the claim's record in the background on nodes that may have it, until they
// have answered or the record has certainly run out. Only availability depends on it: until then
// such a node has no vote for other claims.
func (b *backend) sweep(c *locker.Claim, nodes []int) {
	if len(nodes) == 0 {
		return
	}
	select {
	case b.sweeping <- struct{}{}:
	default:
		b.cfg.Logger.Debug("too much to sweep: left to its TTL", "lock", c.Names[0])
		return
	}
	b.calls.Go(func() {
		defer func() { <-b.sweeping }()
		b.sweepUntilGone(c, nodes)
	})
}

func (b *backend) sweepUntilGone(c *locker.Claim, nodes []int) {
	ctx, cancel := context.WithTimeout(b.life, c.TTL+grace)
	defer cancel()
	backoff := lease.Backoff{Base: 50 * time.Millisecond, Max: time.Second}
	for len(nodes) > 0 {
		select {
		case <-time.After(backoff.Next()):
		case <-ctx.Done():
			return
		}
		nodes, _ = b.undo(ctx, c, nodes, nil)
	}
}
