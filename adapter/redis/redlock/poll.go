package redlock

import (
	"context"
	"time"
)

// An answer is one node's answer to a question.
type answer[T any] struct {
	node  int
	value T
}

// A question is put to several nodes at once.
type question[T any] struct {
	nodes []int
	// ask asks one node. Its context ends after the node timeout.
	ask func(context.Context, *node) T
	// hear takes one answer and reports whether the others cannot change the outcome. It is called
	// from the goroutine of poll.
	hear func(answer[T]) (decided bool)
	// thorough waits for every node until the node timeout, decided or not.
	thorough bool
	// abandon cancels the requests to nodes that poll no longer waits for. Otherwise they continue
	// in the background until the node timeout.
	abandon bool
}

// poll asks the question. It returns when all nodes have answered, when the node timeout is over,
// when ctx is done or, once the outcome is decided, after as long again as that took: a slow,
// frozen or unreachable node does not hold up the others.
func poll[T any](ctx context.Context, b *backend, q question[T]) {
	if len(q.nodes) == 0 {
		return
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.cfg.NodeTimeout)
	answers := make(chan answer[T], len(q.nodes)) // room for all, so that a late answer does not block
	begin := time.Now()
	b.spread(asking, cancel, len(q.nodes), func(ctx context.Context, i int) {
		answers <- answer[T]{q.nodes[i], q.ask(ctx, b.nodes[q.nodes[i]])}
	})
	if q.abandon {
		defer cancel()
	}
	limit := time.NewTimer(b.cfg.NodeTimeout)
	defer limit.Stop()
	decided := false
	for range q.nodes {
		select {
		case a := <-answers:
			if q.hear(a) && !decided && !q.thorough {
				decided = true
				took := time.Since(begin)
				limit.Reset(min(took, b.cfg.NodeTimeout-took))
			}
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// spread calls f for 0 to count-1 at once, in goroutines that Close waits for, and calls cancel
// after the last has returned.
func (b *backend) spread(ctx context.Context, cancel context.CancelFunc, count int, f func(context.Context, int)) {
	left := make(chan struct{}, count)
	for i := range count {
		b.calls.Go(func() {
			f(ctx, i)
			left <- struct{}{}
			if len(left) == count {
				cancel()
			}
		})
	}
}
