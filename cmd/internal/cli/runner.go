//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/cmd/internal/supervise"
)

const (
	// goodbye bounds releasing the lock and ending the session.
	goodbye = 5 * time.Second
	// goodbyeLost is the same bound if the service is probably out of reach.
	goodbyeLost = 500 * time.Millisecond
	// signalBuffer is how many signals can wait while another is handled. Any that do not fit are
	// dropped, as the kernel drops a signal that is already pending.
	signalBuffer = 64
)

// A runner is one run, from waiting for the lock to its release.
type runner struct {
	app       *App
	plan      claimPlan
	signals   chan os.Signal
	inherited supervise.Signals // the signals that the command finds ignored and blocked
	locker    lockstep.Locker
	lock      lockstep.Lock
	hurried   chan struct{} // see hurry, which creates it
}

// run waits for the lock, runs the command, and releases the lock. The error carries the exit code;
// nil means code 0.
func (a *App) run(ctx context.Context, plan runPlan) error {
	if err := a.adopt(); err != nil {
		return err
	}
	r, err := a.begin(ctx, plan.claimPlan)
	if r == nil {
		return err
	}
	defer signal.Stop(r.signals)
	h := &holding{runner: r, plan: plan}
	status, err := h.hold()
	if h.stuck { // part of the command is alive: the service must not believe that we let go
		return exitError{CodeLost, err}
	}
	r.dwell(h.keepUntil())
	r.release(h.overseer.loss)
	if err != nil {
		return err
	}
	return exitWith(status)
}

// dwell keeps the lock until the given time unless it is asked to end sooner.
func (r *runner) dwell(until time.Duration) {
	for supervise.Now() < until && r.lock.Check() == nil && r.plan.endWith.due() == "" {
		timer := time.NewTimer(min(endWithLook, until-supervise.Now()))
		select {
		case <-timer.C:
		case sig := <-r.signals:
			if r.heed(sig) {
				until = 0
			}
		}
		timer.Stop()
	}
}

// heed stops this process if sig is the signal of ctrl-Z, which is caught once a command was
// started. It reports whether sig asks for the end.
func (r *runner) heed(sig os.Signal) (ends bool) {
	if sig == syscall.SIGTSTP {
		supervise.StopSelf(r.signals)
	}
	return supervise.Ends(sig)
}

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

// begin waits for the lock. If it is not granted, the runner is nil and the error carries the exit
// code. Signals go to the runner's channel from here on.
func (a *App) begin(ctx context.Context, plan claimPlan) (*runner, error) {
	r := &runner{app: a, plan: plan, inherited: supervise.SignalsAtStart(), signals: make(chan os.Signal, signalBuffer)}
	supervise.NotifyEnding(r.signals)
	var err error
	if err = a.waitsForItself(plan); err != nil {
		signal.Stop(r.signals)
		return nil, err
	}
	if r.locker, err = a.OpenLocker(plan.target); err == nil {
		if r.lock, err = r.acquire(ctx); err == nil {
			return r, nil
		}
		r.leave(goodbye)
		err = r.refusal(err)
	}
	signal.Stop(r.signals)
	return nil, err
}

func exitWith(code int) error {
	if code == CodeOK {
		return nil
	}
	return exitError{code: code}
}

type acquired struct {
	lock lockstep.Lock
	err  error
}

// acquire waits for the lock. If a signal asks us to end, or what --end-with names has ended, it
// cancels the request and waits until nothing of it is left; after a second signal it does not
// wait.
func (r *runner) acquire(ctx context.Context) (lockstep.Lock, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	result := make(chan acquired, 1)
	go func() {
		lock, err := r.locker.Acquire(ctx, r.plan.name, r.plan.options...)
		result <- acquired{lock, err}
	}()
	look := time.NewTicker(endWithLook)
	defer look.Stop()
	defer r.narrate(ctx)()
	for end := error(nil); ; {
		select {
		case got := <-result:
			return r.granted(got, end)
		case <-look.C:
			if why := r.plan.endWith.due(); why != "" && end == nil {
				end = endsEarly(why)
				cancel()
			}
		case sig := <-r.signals:
			if !r.heed(sig) { // meant for a command that is not running yet
				continue
			}
			if end != nil && hurries(sig) {
				r.hurried = closed()
				return nil, endedBy(sig)
			}
			end = endedBy(sig)
			cancel()
		}
	}
}

// granted returns the outcome of a request; if end is set, the lock is no longer wanted.
func (r *runner) granted(got acquired, end error) (lockstep.Lock, error) {
	if end == nil && got.lock != nil {
		if why := r.plan.endWith.due(); why != "" { // at the same moment
			end = endsEarly(why)
		}
	}
	if end == nil {
		return got.lock, got.err
	}
	if got.lock != nil {
		r.lock = got.lock
		r.release(nil)
	}
	return nil, end
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func endedBy(sig os.Signal) error {
	number, _ := sig.(syscall.Signal)
	return exitError{code: 128 + int(number)}
}

// refusal gives the error of an acquisition its exit code.
func (r *runner) refusal(err error) error {
	if !errors.Is(err, lockstep.ErrBusy) {
		return err
	}
	if r.plan.busyCode == CodeOK { // requested by the user, so nothing to report
		return nil
	}
	return exitError{r.plan.busyCode, err}
}

// release releases the lock and ends the session. For a revoked lock, this is the acknowledgement
// that the service waits for. A failure is reported and returned. It delays others by at most the
// rest of the lease, and does not make the command a failure: it ran under the lock.
func (r *runner) release(loss error) error {
	patience := goodbye
	if loss != nil && !revoked(loss) {
		patience = goodbyeLost
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.lock.Release(ctx) }()
	select {
	case err := <-done:
		if errors.Is(err, lockstep.ErrLost) {
			err = nil
		}
		if err != nil {
			r.say("the release was not confirmed, so the lock may stay held for up to %v: %v", r.plan.target.TTL, err)
		}
		r.leave(patience)
		return err
	case <-r.hurry():
		return lockstep.ErrUncertain
	}
}

// leave ends the session, so that nothing of this run stays in a queue.
func (r *runner) leave(patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.locker.Close(ctx) }()
	select {
	case <-done: // after a failure, the lease still ends it
	case <-ctx.Done():
	case <-r.hurry():
	}
}

// hurry returns a channel that is closed when the user interrupts what is left to do after the
// command. Other signals have no effect: a service manager that sends TERM to both run and the
// command wants both to end properly.
func (r *runner) hurry() <-chan struct{} {
	if r.hurried == nil {
		r.hurried = make(chan struct{})
		go func() {
			for !hurries(<-r.signals) {
			}
			close(r.hurried)
		}()
	}
	return r.hurried
}

func hurries(sig os.Signal) bool { return sig == syscall.SIGINT || sig == syscall.SIGQUIT }

func revoked(err error) bool {
	var loss *lockstep.LossError
	return errors.As(err, &loss) && loss.Reason == lockstep.Revoked
}

// say prints a line for the user.
func (r *runner) say(format string, args ...any) {
	r.app.complain(r.plan.verb, fmt.Errorf(format, args...))
}
