package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/cmd/internal/supervise"
)

// adopt makes this process the parent of orphans: descendants of the command if its watcher is
// killed, and, as process 1 of a container, unrelated orphans too.
func (a *App) adopt() error {
	if a.Adopt == nil {
		return nil
	}
	if err := a.Adopt(); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	return nil
}

// claim returns what package supervise needs to know about the claim of a plan.
func (a *App) claim(plan claimPlan) supervise.Claim {
	claim := supervise.Claim{
		Open:    func() (lockstep.Locker, error) { return a.OpenLocker(plan.target) },
		Name:    plan.name,
		Options: plan.options,
		EndWith: plan.endWith,
		Report:  func(e supervise.Event) { a.complain(plan.verb, sentence(plan, e)) },
	}
	if a.narrates(plan.target.Verbose) {
		claim.Waiting = func(ctx context.Context, locker lockstep.Locker) func() { return a.narrate(ctx, plan, locker) }
	}
	return claim
}

// begin waits for the lock. If it is not granted, the holder is nil and the error carries the exit
// code; nil means that the lock is busy and the user asked for code 0.
func (a *App) begin(ctx context.Context, plan claimPlan) (*supervise.Holder, error) {
	if err := a.waitsForItself(plan); err != nil {
		return nil, err
	}
	holder, err := supervise.Acquire(ctx, a.claim(plan))
	switch {
	case err == nil:
		return holder, nil
	case !errors.Is(err, lockstep.ErrBusy):
		return nil, outcome(plan, err)
	case plan.busyCode == CodeOK: // requested by the user, so nothing to report
		return nil, nil
	default:
		return nil, exitError{plan.busyCode, err}
	}
}

// supervised returns the command of a plan, as package supervise runs it.
func (p commandPlan) supervised(claim claimPlan) supervise.Command {
	return supervise.Command{
		Path:      p.command[0],
		Args:      p.command[1:],
		Env:       func(lock lockstep.Lock) []string { return environment(lock, claim) },
		KillAfter: p.killAfter,
		Drain:     p.drain,
		WaitAll:   p.waitAll,
	}
}

// ended returns the result of a command as an error that carries the exit code; nil means code 0.
func ended(plan claimPlan, code int, err error) error {
	switch {
	case err != nil:
		return outcome(plan, err)
	case code != CodeOK:
		return exitError{code: code}
	default:
		return nil
	}
}

// outcome gives an error of package supervise its exit code and its text. Errors of the backend
// stay as they are.
func outcome(plan claimPlan, err error) error {
	var lost *supervise.LostError
	var stuck *supervise.StuckError
	var start *supervise.StartError
	var bySignal *supervise.SignalError
	var due *supervise.DueError
	switch {
	case errors.Is(err, supervise.ErrSystem):
		return exitError{CodeNotRunnable, errors.New(plan.verb + " does not work on " + runtime.GOOS + ": use the Go library there")}
	case errors.As(err, &lost):
		return exitError{CodeLost, loss(plan.name, lost)}
	case errors.As(err, &stuck):
		return exitError{CodeLost, fmt.Errorf("the command was not stopped: %v after the kill, %s is still alive; the lock is not released, and ends with its lease",
			stuck.After, supervise.Name(stuck.Left))}
	case errors.As(err, &start):
		return exitError{CodeNotRunnable, start.Err}
	case errors.As(err, &bySignal):
		return exitError{code: 128 + int(bySignal.Signal)}
	case errors.As(err, &due): // the exit code of a command killed by TERM
		return exitError{128 + int(syscall.SIGTERM), fmt.Errorf("%s: giving up the wait", due.Reason)}
	default:
		return err
	}
}

// loss says that a lock was lost, and why.
func loss(name string, lost *supervise.LostError) error {
	if !lost.Started {
		return lost.Err
	}
	return fmt.Errorf("lost %s (token %d): %w; the command was stopped", printable(name), lost.Token, lost.Err)
}

// sentence says what happened to the user.
func sentence(plan claimPlan, event supervise.Event) error {
	switch e := event.(type) {
	case supervise.Failed:
		return e.Err
	case supervise.CommandStopped:
		return fmt.Errorf("the command was stopped by %s; %s is still being renewed: continue it with kill -CONT %d, or end it with kill -TERM %d",
			e.Signal, printable(plan.name), e.Group, os.Getpid())
	case supervise.Suspending:
		return fmt.Errorf("stopped: %s is not being renewed, and will be lost in %v unless continued",
			printable(plan.name), e.Remaining.Round(100*time.Millisecond))
	case supervise.LeftRunning:
		return fmt.Errorf("the command ended and left %s running without the lock; --wait-all keeps the lock until they end", supervise.Name(e.Left))
	case supervise.Unkillable:
		return fmt.Errorf("%v after the kill, %s of the command is still alive; %s is renewed until it ends; interrupt to stop waiting and let the lease expire",
			e.After, supervise.Name(e.Left), printable(plan.name))
	case supervise.ReleaseUnconfirmed:
		return fmt.Errorf("the release was not confirmed, so the lock may stay held for up to %v: %v", plan.target.TTL, e.Err)
	case supervise.CampaignFailed:
		return fmt.Errorf("cannot campaign, retrying: %w", outcome(plan, e.Err))
	case supervise.TermLost:
		return fmt.Errorf("%w; campaigning again", outcome(plan, e.Err))
	default:
		return whyStopped(event)
	}
}

// whyStopped says why a command is being stopped although its lock is held.
func whyStopped(event supervise.Event) error {
	switch e := event.(type) {
	case supervise.WatcherKilled:
		return errors.New("the watcher was killed, and so was the command")
	case supervise.Interrupted:
		return errors.New("second interrupt: stopping the command")
	case supervise.Due:
		return fmt.Errorf("%s: stopping the command", e.Reason)
	case supervise.HeldTooLong:
		return fmt.Errorf("running for %v, the limit of --max-hold: stopping the command", e.Limit)
	default:
		return fmt.Errorf("%T", event)
	}
}
