package s3fence

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/lease"
)

// maxTries bounds how often a step tries to store its manifest. When a try loses, another writer
// has won. Of 8 equal writers without pauses, one would lose 24 times in a row once in 25 steps,
// (7/8)^24; the pauses spread them out.
const maxTries = 24

// maxDoubts bounds how many tries of a step may go unanswered.
const maxDoubts = 3

// The pause before a try is random between zero and a bound: firstPause before the second try,
// doubling before each further one up to maxPause. All pauses of a step are below 5 s in total, and
// half of that on average.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = 250 * time.Millisecond
)

// A plan is one change of a manifest.
type plan struct {
	keys keys
	// nonce marks the change, so that it can be found again.
	nonce string
	// change is what happens to the data.
	change change
	// decide derives the next manifest from the current one. The same manifest means that there is
	// nothing to store. dead are the keys of data that is not needed once the manifest is stored.
	decide func(now manifest) (next manifest, dead []string, err error)
	// prepare is called before the first manifest is stored. nil: there is nothing to prepare.
	prepare func(context.Context) error
	// data is the key of what prepare uploads, to be removed if the step is refused; "" if nothing
	// is uploaded.
	data string
}

// carryOut stores the manifest that the plan derives, on condition that the manifest has not
// changed in between, and starts over if it has. After an unanswered put it checks whether the
// change is there, and repeats it only if not, so it is made once.
func (g *Guard) carryOut(ctx context.Context, p plan) error {
	e := execution{plan: p, store: g.store}
	for try := range maxTries {
		if err := pause(ctx, try); err != nil {
			return e.end(err)
		}
		if over, err := e.try(ctx); over {
			return err
		}
	}
	return e.end(fmt.Errorf("%w: %d tries met other writers", fence.ErrBusy, maxTries))
}

// An execution is a plan that is being carried out.
type execution struct {
	plan
	store    store
	prepared bool
	dead     []string // by the last put
	doubt    error    // why it is unknown whether some put took effect
	doubts   int
}

// try makes one attempt, unless the change is already there or cannot be made. over means that no
// further attempt is needed.
func (e *execution) try(ctx context.Context) (over bool, err error) {
	now, etag, err := e.store.load(ctx, e.keys)
	switch {
	case err != nil:
		return true, e.end(err)
	case now.bears(e.nonce):
		e.store.discard(ctx, e.dead...)
		return true, nil
	case e.doubts == maxDoubts:
		return true, e.end(nil)
	}
	next, dead, err := e.decide(now)
	if err != nil {
		e.withdraw(ctx, now)
		return true, e.end(err)
	}
	if next == now {
		return true, nil
	}
	if err := e.prepareOnce(ctx); err != nil {
		return true, e.end(err)
	}
	e.dead = dead
	_, err = e.store.putIf(ctx, e.keys.manifest, etag, next.encode())
	switch judge(err) {
	case done:
		e.store.discard(ctx, dead...)
		return true, nil
	case refused:
		return true, e.end(failed(err))
	case unknown:
		e.doubt, e.doubts = err, e.doubts+1
	}
	return false, nil
}

func (e *execution) prepareOnce(ctx context.Context) error {
	if e.prepared || e.prepare == nil {
		return nil
	}
	e.prepared = true
	return e.prepare(ctx)
}

// withdraw removes the data of a step that the current manifest refuses. A put of the step still in
// flight comes too late: its condition names an earlier manifest, which admitted it. If a step ends
// in any other way, the data may be in use.
func (e *execution) withdraw(ctx context.Context, now manifest) {
	if e.prepared && e.data != "" && !now.refersTo(e.data) {
		e.store.discard(ctx, e.data)
	}
}

// end returns the error of a step that ends with err.
func (e *execution) end(err error) error {
	if e.doubt != nil {
		return doubtful(e.doubt, err)
	}
	return err
}

// pause waits before any try but the first. It ends the step when ctx is done.
func pause(ctx context.Context, try int) error {
	if try == 0 {
		return ctx.Err() // while it is certain that nothing was sent
	}
	bound := maxPause
	if doubled := firstPause << (try - 1); try < 6 {
		bound = min(doubled, maxPause)
	}
	lease.Sleep(ctx, rand.N(bound))
	return ctx.Err()
}
