package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// A backend is the nodes. It implements [locker.Backend] and [locker.Renewer].
type backend struct {
	cfg     Config
	scripts scripts
	nodes   []*node
	all     []int // the indexes of nodes

	life     context.Context // ends with Close
	endLife  context.CancelFunc
	calls    sync.WaitGroup // requests and sweeps in progress
	sweeping chan struct{}  // one slot per sweep in progress
	takes    chan struct{}  // one slot per attempt in progress

	// allHeard is set once every node has had time to identify itself. Until then no outcome is
	// decided early, so that a server that must be refused is found at the first use.
	allHeard atomic.Bool
}

var (
	_ locker.Backend = (*backend)(nil)
	_ locker.Renewer = (*backend)(nil)
)

func (b *backend) lockKey(name string) string { return b.cfg.KeyPrefix + lockKey + name }
func (b *backend) counterKey() string         { return b.cfg.KeyPrefix + counterKey }

// Renew implements [locker.Renewer]: compare-and-extend on all nodes, confirmed by a majority.
func (b *backend) Renew(ctx context.Context, c *locker.Claim) error {
	t := tally{count: len(b.nodes)}
	var last error
	var lacking []int
	poll(ctx, b, question[vote]{
		nodes: b.all,
		ask: func(ctx context.Context, n *node) vote {
			return newVote(n.yes(ctx, b.scripts.extend, []string{b.lockKey(c.Names[0])}, c.ID, c.TTL.Milliseconds()))
		},
		hear: func(a answer[vote]) bool {
			if a.value.err != nil {
				last = errors.Join(last, a.value.err)
				return false
			}
			if t.hear(a.value.yes); !a.value.yes {
				lacking = append(lacking, a.node)
			}
			return t.carried() || t.rejected()
		},
	})
	switch {
	case t.carried():
		b.mend(ctx, c, lacking)
		return nil
	case t.rejected():
		return &lockstep.LossError{Reason: lockstep.RecordMissing, Detail: fmt.Sprintf("%d of %d nodes do not have it", t.no, t.count)}
	default:
		return fmt.Errorf("%w: %d of %d nodes renewed: %w", lockstep.ErrUnavailable, t.yes, t.count, orSilent(last))
	}
}

// mend sets the record on nodes that do not have it, because they were down or lost it, unless
// another holder's record is there. Without this a long-held lock would be lost once a majority of
// the nodes had been down, even if never two at a time. The nodes count from the next renewal on.
func (b *backend) mend(ctx context.Context, c *locker.Claim, nodes []int) {
	t, err := newTaking(b, c)
	if err != nil || ctx.Err() != nil { // the lock is being released: a record set now would outlive it by a TTL
		return
	}
	poll(ctx, b, question[reply]{
		nodes: nodes, ask: t.askToGrant, abandon: true,
		hear: func(answer[reply]) bool { return false },
	})
}

// Drop implements [locker.Backend]. It is enough that a majority certainly does not have the claim:
// what the others have cannot make a second winner. They are swept in the background.
func (b *backend) Drop(ctx context.Context, c *locker.Claim) error {
	t := tally{count: len(b.nodes)}
	left, err := b.undo(ctx, c, b.all, &t)
	switch {
	case !t.answered():
		return fmt.Errorf("%w: %d of %d nodes answered: %w", lockstep.ErrUncertain, t.yes+t.no, t.count, orSilent(err))
	case t.rejected():
		b.sweep(c, left)
		return &lockstep.LossError{Reason: lockstep.RecordMissing, Detail: fmt.Sprintf("%d of %d nodes did not have it", t.no, t.count)}
	}
	b.sweep(c, left)
	return nil
}

// Close implements [locker.Backend]. It waits for requests in progress, which end within the node
// timeout.
func (b *backend) Close(ctx context.Context) error {
	b.endLife()
	done := make(chan struct{})
	go func() {
		b.calls.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A vote is a node's yes or no, or the reason why there is none.
type vote struct {
	yes bool
	err error
}

func newVote(yes bool, err error) vote { return vote{yes, err} }

// errSilent stands for the errors of nodes that did not answer in time.
var errSilent = errors.New("no answer in time")

func orSilent(err error) error {
	if err == nil {
		return errSilent
	}
	return err
}
