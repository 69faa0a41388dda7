package s3fence

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockstep-dev/lockstep/fence"
)

// maxTries bounds how often a step tries to store its manifest. A try that is lost was won by somebody else. Of 8 equal writers that never
// stop, one that draws its pauses as below is passed over 24 times in a row less than once in 20 steps even without pauses, (7/8)^24.
const maxTries = 24

// maxDoubts bounds how many tries of a step may stay without an answer.
const maxDoubts = 3

// The pause before a try is drawn from zero to a bound: firstPause before the second, and twice as much before each that follows, up to
// maxPause. All pauses of a step are below 6 s, and 3 s on average.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = 250 * time.Millisecond
)

// A plan is one change of a manifest.
type plan struct {
	keys keys
	// nonce marks the change, so that it is found again.
	nonce string
	// decide makes the next manifest of the present one. The same manifest means that there is nothing to store. dead are the keys of data that nobody
	// needs once it is stored.
	decide func(now manifest) (next manifest, dead []string, err error)
	// prepare is called before the first manifest is stored. nil: there is nothing to prepare.
	prepare func(context.Context) error
}

// carryOut stores what the plan makes of the manifest on the condition that the manifest has not changed in between, and starts again
// when it has. After a put without an answer it looks whether the change is there, and makes it again only if not, so it
// is made once.
func (g *Guard) carryOut(ctx context.Context, p plan) error {
	var doubt error // why it is unknown whether a put took effect
	var dead []string
	end := func(err error) error {
		if doubt != nil {
			return doubtful(doubt, err)
		}
		return err
	}
	doubts := 0
	for try := range maxTries {
		if err := pause(ctx, try); err != nil {
			return end(err)
		}
		now, etag, err := g.load(ctx, p.keys)
		switch {
		case err != nil:
			return end(err)
		case now.bears(p.nonce):
			g.store.discard(ctx, dead...)
			return nil
		case doubts == maxDoubts:
			return end(nil)
		}
		next, unneeded, err := p.decide(now)
		if err != nil {
			return end(err)
		}
		if next == now {
			return nil
		}
		if p.prepare != nil {
			if err := p.prepare(ctx); err != nil {
				return end(err)
			}
			p.prepare = nil
		}
		dead = unneeded
		switch err := g.replace(ctx, p.keys, etag, next); judge(err) {
		case done:
			g.store.discard(ctx, dead...)
			return nil
		case refused:
			return end(failed(err))
		case unknown:
			doubt, doubts = err, doubts+1
		}
	}
	return end(fmt.Errorf("%w: %d tries met other writers", fence.ErrBusy, maxTries))
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

// load reads the manifest of a resource, and the ETag by which it is replaced. Both are zero when there is none.
func (g *Guard) load(ctx context.Context, k keys) (m manifest, etag string, err error) {
	content, etag, err := g.store.get(ctx, k.manifest, maxManifestBytes)
	switch {
	case noSuchObject(err):
		return manifest{}, "", nil
	case err != nil:
		return manifest{}, "", failed(err)
	}
	m, err = decode(content, k)
	return m, etag, err
}

// replace stores a manifest where the one with the ETag is.
func (g *Guard) replace(ctx context.Context, k keys, etag string, next manifest) error {
	_, err := g.store.putIf(ctx, k.manifest, etag, next.encode())
	return err
}
