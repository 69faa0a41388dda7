package redlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// maxTakes bounds the attempts of one Locker in progress; the others wait for their turn before
// anything is sent. With nodes that are slow to sync, or a busy machine, more concurrent attempts
// would each take so long that none would be answered within the node timeout, and undoing them
// would prolong that. At 3 ms for both steps, this limit allows more than 1,000 a second.
const maxTakes = 4

// A taking is one call of Take: the shell around one attempt.
type taking struct {
	*backend
	claim   *locker.Claim
	tail    string // of the record
	attempt attempt
	sights  []sight // of the holders in the way
	errs    error   // of nodes that gave no vote
	misfit  error   // a server that must not be a node
}

func newTaking(b *backend, c *locker.Claim) (*taking, error) {
	tail, err := recordTail(c.ID, c.Metadata)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", lockstep.ErrInvalid, err)
	}
	return &taking{backend: b, claim: c, tail: tail, attempt: newAttempt(len(b.nodes))}, nil
}

// Take implements [locker.Backend]. Once its turn has come, it is bounded by three node timeouts:
// two steps and the undo. The Locker counts the lease from before this call, and releases a grant
// that comes after its end: that is Redlock's validity = TTL - elapsed - margin, for both steps.
func (b *backend) Take(ctx context.Context, c *locker.Claim) (locker.Grant, error) {
	t, err := newTaking(b, c)
	if err != nil {
		return locker.Grant{}, err
	}
	select {
	case b.takes <- struct{}{}:
		defer func() { <-b.takes }()
	case <-ctx.Done():
		return locker.Grant{}, fmt.Errorf("%w: %w", lockstep.ErrUnavailable, ctx.Err())
	}
	t.readAll(ctx)
	if nodes, token := t.attempt.beginRaise(); token != 0 && t.misfit == nil && ctx.Err() == nil {
		t.raiseAll(ctx, nodes, token)
	}
	if t.attempt.finish() {
		return locker.Grant{Token: t.attempt.token, Owner: ownerOf(c.ID)}, nil
	}
	return locker.Grant{}, t.giveUp(ctx)
}

// A reply is a node's answer to step 1.
type reply struct {
	granted bool
	counter lockstep.Token
	holder  sight
	err     error
}

// readAll is step 1.
func (t *taking) readAll(ctx context.Context) {
	heard := 0
	poll(ctx, t.backend, question[reply]{
		nodes: t.all, ask: t.askToGrant, thorough: !t.allHeard.Load(), abandon: true,
		hear: func(a answer[reply]) bool {
			heard++
			t.note(a.node, a.value)
			return t.attempt.decided()
		},
	})
	if heard == len(t.all) || ctx.Err() == nil {
		t.allHeard.Store(true)
	}
}

func (t *taking) askToGrant(ctx context.Context, n *node) reply {
	if err := n.examine(ctx); err != nil {
		return reply{err: err}
	}
	keys := []string{t.lockKey(t.claim.Names[0]), t.counterKey()}
	answer, err := n.eval(ctx, t.scripts.take, keys, t.claim.ID, t.claim.TTL.Milliseconds(), t.tail)
	if err != nil {
		return reply{err: err}
	}
	r, err := parseReply(answer)
	if err != nil {
		return reply{err: fmt.Errorf("%s: %w", n.field, err)}
	}
	return r
}

// parseReply parses the reply of the step 1 script.
func parseReply(answer any) (reply, error) {
	parts, ok := answer.([]any)
	if !ok || len(parts) != 2 {
		return reply{}, fmt.Errorf("step 1 answered %T, want a pair", answer)
	}
	code, okCode := parts[0].(int64)
	text, okText := parts[1].(string)
	switch {
	case !okCode || !okText:
		return reply{}, fmt.Errorf("step 1 answered %T and %T, want a number and a string", parts[0], parts[1])
	case code == 0:
		holder, err := parseSight(text)
		if err != nil {
			holder = sight{} // all that matters is that something there is not ours
		}
		return reply{holder: holder}, nil
	}
	counter, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return reply{}, fmt.Errorf("step 1 answered with the counter %s", lockstep.Excerpt(text))
	}
	return reply{granted: true, counter: lockstep.Token(counter)}, nil
}

// note passes an answer of step 1 to the attempt.
func (t *taking) note(node int, r reply) {
	switch {
	case r.err == nil && r.granted:
		t.attempt.granted(node, r.counter)
	case r.err == nil:
		t.attempt.declined(node)
		t.sights = append(t.sights, r.holder)
	default:
		t.errs = errors.Join(t.errs, r.err)
		if errors.Is(r.err, lockstep.ErrInvalid) {
			t.misfit = errors.Join(t.misfit, r.err)
		}
		if hadNoEffect(r.err) || errors.Is(r.err, lockstep.ErrInvalid) {
			t.attempt.unreached(node)
		}
	}
}

// raiseAll is step 2.
func (t *taking) raiseAll(ctx context.Context, nodes []int, token lockstep.Token) {
	readings := t.attempt.counters
	keys := []string{t.lockKey(t.claim.Names[0]), t.counterKey()}
	poll(ctx, t.backend, question[vote]{
		nodes: nodes,
		ask: func(ctx context.Context, n *node) vote {
			return newVote(n.yes(ctx, t.scripts.raise, keys, t.claim.ID, uint64(readings[n.index]), uint64(token)))
		},
		hear: func(a answer[vote]) bool {
			switch {
			case a.value.err != nil:
				t.errs = errors.Join(t.errs, a.value.err)
			case a.value.yes:
				t.attempt.confirmed(a.node)
			default:
				t.attempt.vanished(a.node)
			}
			return t.attempt.decided()
		},
	})
}

// giveUp undoes a failed attempt and returns why it failed. The claim counts as gone once fewer
// than a majority may have it; those few are swept. If more may have it, the error makes the Locker
// drop the claim.
func (t *taking) giveUp(ctx context.Context) error {
	left := t.attempt.mayHold()
	if ctx.Err() == nil {
		left, _ = t.undo(ctx, t.claim, left, nil)
	}
	why := t.reason(ctx)
	if len(left) >= majority(t.attempt.count) {
		return fmt.Errorf("%w: %v", lockstep.ErrUncertain, why)
	}
	t.sweep(t.claim, left)
	return why
}

func (t *taking) reason(ctx context.Context) error {
	holder, found := holderOf(t.attempt.count, t.sights)
	switch {
	case t.misfit != nil:
		return t.misfit
	case found:
		return &lockstep.BusyError{Holders: []lockstep.Claim{holder}}
	case len(t.sights) > 0:
		return &lockstep.BusyError{}
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", lockstep.ErrUnavailable, ctx.Err())
	default:
		return fmt.Errorf("%w: less than %d of %d nodes gave their vote: %w",
			lockstep.ErrUnavailable, majority(t.attempt.count), t.attempt.count, orSilent(t.errs))
	}
}
