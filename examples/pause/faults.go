package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep/examples/internal/account"
	"github.com/lockstep-dev/lockstep/examples/internal/stage"
	"github.com/lockstep-dev/lockstep/examples/internal/timeline"
)

func (p *performance) freeze(context.Context) error {
	if err := stage.Suspend(p.a.PID()); err != nil {
		return fmt.Errorf("freeze A: %w", err)
	}
	p.tale.enter(laneFault, time.Now(), timeline.Frozen, "frozen")
	p.Say("SIGSTOP to A, between its check of the lease and its write.")
	return nil
}

func (p *performance) thaw(context.Context) error {
	if err := stage.Resume(p.a.PID()); err != nil {
		return fmt.Errorf("wake A: %w", err)
	}
	p.tale.over(laneFault, time.Now())
	p.Say("SIGCONT: A continues where it stopped, and writes %d, based on what it read before.", account.Opening+addsA)
	return nil
}

func (p *performance) cutOff(context.Context) error {
	p.cable.Cut()
	p.tale.enter(laneFault, time.Now(), timeline.Cut, "cut off")
	p.Say("A's network to the lock service is cut, between A's check of the lease and its write.")
	return nil
}

// awaitLoss shows that A could know by now that its lock is lost. A has already been asked to
// write, and its work takes its time.
func (p *performance) awaitLoss(ctx context.Context) error {
	for range 100 {
		if lost, is := p.a.Lost(); is {
			p.tale.mark(laneFault, lost.At, timeline.Event, "its lock says: lost")
			p.tale.over(laneFault, time.Now())
			p.Say("A's own lock reported it %.1f s after the cut: %s.", lost.At.Sub(p.struck).Seconds(), lost.Error)
			p.Say("But A had checked before, and its write goes over another network: %d, based on what it read before.", account.Opening+addsA)
			return nil
		}
		stage.Sleep(ctx, 100*time.Millisecond)
	}
	return errors.New("the lock of A never reported that it was lost")
}

func (p *performance) changeLeader(ctx context.Context) error {
	if err := p.freeze(ctx); err != nil {
		return err
	}
	before := time.Now()
	what, leader, err := p.service.change(ctx)
	if err != nil {
		return err
	}
	p.tale.over(laneService, before)
	p.tale.leads(time.Now(), leader)
	p.tale.mark(laneService, before, timeline.Event, what)
	p.service.leader = leader
	p.Say("%s. %s is in charge %.1f s later, and knows that A has the lock.", what, leader, time.Since(before).Seconds())
	return nil
}
