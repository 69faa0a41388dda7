package s3fence

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockstep-dev/lockstep/fence"
)

// maxTries bounds how often a step tries to store its manifest. A try that is lost was won by
// somebody else. Of 8 equal writers without pauses one would be passed over 24 times in a row once
// in 25 steps, (7/8)^24; the pauses spread them.
const maxTries = 24

// maxDoubts bounds how many tries of a step may stay without an answer.
const maxDoubts = 3

// The pause before a try is drawn from zero to a bound: firstPause before the second, and twice as
// much before each that follows, up to maxPause. All pauses of a step are below 5 s together, and
// half of that on average.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = 250 * time.Millisecond
)

// A plan is one change of a manifest.
type plan struct {
	keys keys
	// nonce marks the change, so that it is found again.
	nonce string
	// change is what becomes of the data.
	change change
	// decide makes the next manifest of the present one. The same manifest means that there is
	// nothing to store. dead are the keys of data that nobody needs once it is stored.
	decide func(now manifest) (next manifest, dead []string, err error)
	// prepare is called before the first manifest is stored. nil: there is nothing to prepare.
	prepare func(context.Context) error
	// data is the key of what prepare uploads, to be removed when the step is refused. "": nothing
	// is.
	data string
}

// carryOut stores what the plan makes of the manifest on the condition that the manifest has not
// changed in between, and starts again when it has. After a put without an answer it looks whether
// the change is there, and makes it again only if not, so it is made once.
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
	doubt    error    // why it is unknown whether a put took effect
	doubts   int
}

// try makes one attempt, unless the change is there or cannot be made. It is over when there is no
// need of another.
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

// withdraw removes the data of a step that the present manifest refuses. A put of it that is still
// on its way comes too late: it was made on another manifest, which admitted it. At any other end
// of a step the data may be in use.
func (e *execution) withdraw(ctx context.Context, now manifest) {
	if e.prepared && e.data != "" && !now.refersTo(e.data) {
		e.store.discard(ctx, e.data)
	}
}

// end is the error of a step that ends with err.
func (e *execution) end(err error) error {
	if e.doubt != nil {
		return doubtful(e.doubt, err)
	}
	return err
}

// pause waits before a try that is not the first. It ends the step when ctx is done.
func pause(ctx context.Context, try int) error {
	if try == 0 {
		return ctx.Err() // while it is certain that nothing was sent
	}
	bound := maxPause
	if doubled := firstPause << (try - 1); try < 6 {
		bound = min(doubled, maxPause)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rand.N(bound)):
		return nil
	}
}
