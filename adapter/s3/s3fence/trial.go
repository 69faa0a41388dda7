package s3fence

import (
	"context"
	"fmt"
	"sync"

	"github.com/lockstep-dev/lockstep"
)

// trialName is the part of the key below which trials run. No resource name contains it.
const trialName = "_trial"

// The trial of concurrent puts. A store that checks first and then writes lets two of them through
// if the writes arrive between its two steps.
const (
	trialRounds  = 3
	trialWriters = 6
)

// otherETag looks like an ETag, but no object has it.
const otherETag = `"00000000000000000000000000000000"`

// try finds out whether the store honours conditional puts, using objects whose keys start with
// base, which it removes at the end.
func (s store) try(ctx context.Context, base string) error {
	t := trial{store: s, key: base + "alone"}
	err := t.alone(ctx)
	for round := 0; round < trialRounds && err == nil; round++ {
		err = s.tryTogether(ctx, fmt.Sprintf("%stogether-%d", base, round))
	}
	return err
}

// A trial is what is known about the object at key.
type trial struct {
	store store
	key   string
}

// A trialStep is a put with a condition, and whether the condition holds.
type trialStep struct {
	condition string // for display
	etag      string // "": there must be no object
	content   string
	holds     bool
}

// alone makes the puts one after the other.
func (t trial) alone(ctx context.Context) error {
	defer t.store.discard(ctx, t.key)
	if _, err := t.step(ctx, "", trialStep{"If-Match: an ETag without an object", otherETag, "intruder", false}); err != nil {
		return err
	}
	first, err := t.step(ctx, "", trialStep{"If-None-Match: * without an object", "", "first", true})
	if err != nil {
		return err
	}
	if _, err = t.step(ctx, "first", trialStep{"If-None-Match: * on an object", "", "intruder", false}); err != nil {
		return err
	}
	if _, err = t.step(ctx, "first", trialStep{"If-Match: another ETag", otherETag, "intruder", false}); err != nil {
		return err
	}
	if _, err = t.step(ctx, "first", trialStep{"If-Match: the ETag", first, "second", true}); err != nil {
		return err
	}
	_, err = t.step(ctx, "second", trialStep{"If-Match: an earlier ETag", first, "intruder", false})
	return err
}

// step makes a put, and checks that it is accepted if and only if its condition holds and that the
// object is then as expected: if the condition does not hold, it must still be before, where ""
// means no object. It returns the object's ETag.
func (t trial) step(ctx context.Context, before string, s trialStep) (etag string, err error) {
	_, err = t.store.putIf(ctx, t.key, s.etag, []byte(s.content))
	switch v := judge(err); {
	case v == unknown, v == refused:
		return "", fmt.Errorf("try a put with %s: %w", s.condition, failed(err))
	case v == done && !s.holds:
		return "", fmt.Errorf("%w: the store accepts a put with %s, so it would let a stale writer in", lockstep.ErrUnsupported, s.condition)
	case v == raced && s.holds:
		return "", fmt.Errorf("%w: the store refuses a put with %s: %w", lockstep.ErrUnsupported, s.condition, err)
	}
	want := before
	if s.holds {
		want = s.content
	}
	content, etag, err := t.store.get(ctx, t.key, maxManifestBytes)
	switch {
	case want == "" && noSuchObject(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read what a put with %s has left: %w", s.condition, failed(err))
	case string(content) != want:
		return "", fmt.Errorf("%w: after a put with %s the object is %q, want %q", lockstep.ErrUnsupported, s.condition, content, want)
	}
	return etag, nil
}

// tryTogether lets writers put at the same time with the same condition, once when there is no
// object and once on the resulting object. Only one may win.
func (s store) tryTogether(ctx context.Context, key string) error {
	defer s.discard(ctx, key)
	etag := ""
	for _, condition := range []string{"If-None-Match: *", "If-Match: the ETag"} {
		winner, err := s.race(ctx, key, etag, condition)
		if err != nil {
			return err
		}
		content, present, err := s.get(ctx, key, maxManifestBytes)
		switch {
		case err != nil:
			return fmt.Errorf("read what puts at once have left: %w", failed(err))
		case string(content) != winner:
			return fmt.Errorf("%w: of puts at once with %s the store accepted %q and has %q", lockstep.ErrUnsupported, condition, winner, content)
		}
		etag = present
	}
	return nil
}

// race makes the puts with one condition and returns the content of the winner.
func (s store) race(ctx context.Context, key, etag, condition string) (winner string, err error) {
	var group sync.WaitGroup
	errs := make([]error, trialWriters)
	content := func(i int) string { return fmt.Sprintf("%s, writer %d", condition, i) }
	for i := range errs {
		group.Go(func() { _, errs[i] = s.putIf(ctx, key, etag, []byte(content(i))) })
	}
	group.Wait()
	won := 0
	for i, err := range errs {
		switch judge(err) {
		case done:
			won++
			winner = content(i)
		case unknown, refused:
			return "", fmt.Errorf("try puts at once with %s: %w", condition, failed(err))
		}
	}
	switch won {
	case 1:
		return winner, nil
	case 0: // S3 may answer each of them with a conflict
		return "", fmt.Errorf("%w: of %d puts at once with %s the store accepted none", lockstep.ErrUnavailable, trialWriters, condition)
	default:
		return "", fmt.Errorf("%w: of %d puts at once with %s the store accepted %d, so it would let a stale writer in", lockstep.ErrUnsupported, trialWriters, condition, won)
	}
}
