package locker

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// undo ends, in the background, a claim whose outcome is unknown or that no one waits for.
func (l *Locker) undo(c *Claim) {
	l.do(func() { l.drop(c) })
}

// drop ends a claim in the store, retrying as often as needed. On a backend of records it gives up
// when the record has certainly run out, since the last renewal was sent before. It returns the
// loss if the first call already found no claim: a later call cannot tell whether an earlier one,
// whose answer was lost, ended it.
func (l *Locker) drop(c *Claim) error {
	backoff := lease.Backoff{Base: 25 * time.Millisecond, Max: 500 * time.Millisecond}
	caps := l.cfg.Capabilities
	end := l.cfg.Clock.Now() + max(caps.TTL, c.TTL) + caps.Grace
	for first := true; ; first = false {
		err := l.dropOnce(c)
		switch {
		case err == nil, errors.Is(err, lockstep.ErrLost) && !first:
			return nil
		case errors.Is(err, lockstep.ErrLost):
			return err
		}
		if l.renewer != nil && l.cfg.Clock.Now() >= end {
			return nil
		}
		l.cfg.Logger.Debug("a claim is not ended yet", "lock", c.Names[0], "err", err)
		select {
		case <-time.After(backoff.Next()):
		case <-l.work.Done():
			return lockstep.ErrUncertain
		}
	}
}

func (l *Locker) dropOnce(c *Claim) error {
	ctx, cancel := context.WithTimeout(l.work, lease.Interval(l.cfg.Capabilities.TTL))
	defer cancel()
	return l.backend.Drop(ctx, c)
}
