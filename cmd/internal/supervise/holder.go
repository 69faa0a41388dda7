//go:build unix

package supervise

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lockstep-dev/lockstep"
)

const (
	// closeTimeout bounds releasing the lock and ending the session.
	closeTimeout = 5 * time.Second
	// closeTimeoutLost is the same bound if the service is probably out of reach.
	closeTimeoutLost = 500 * time.Millisecond
	// signalBuffer is how many signals can wait while another is handled. Any that do not fit are
	// dropped, as the kernel drops a signal that is already pending.
	signalBuffer = 64
)

// A Holder has a lock, and the session that it belongs to. Signals to this process go to the Holder
// until its session is over. It is used by one goroutine.
type Holder struct {
	claim     Claim
	signals   chan os.Signal
	inherited signalSettings // the ignored and blocked signals that the command inherits
	locker    lockstep.Locker
	lock      lockstep.Lock
	hurried   chan struct{} // see hurry, which creates it
}

// newHolder catches the signals, and returns a Holder without a lock.
func newHolder(claim Claim) *Holder {
	r := &Holder{claim: claim, inherited: signalsAtStart(), signals: make(chan os.Signal, signalBuffer)}
	notifyEnding(r.signals)
	return r
}

// Acquire waits for the lock. The error is the Locker's, or a [*SignalError] or [*DueError] that
// says what ended the wait. After an error, no claim is left in the queue.
func Acquire(ctx context.Context, claim Claim) (*Holder, error) {
	r := newHolder(claim)
	var err error
	if r.locker, err = claim.Open(); err == nil {
		if r.lock, err = r.acquire(ctx); err == nil {
			return r, nil
		}
		r.leave(closeTimeout)
	}
	signal.Stop(r.signals)
	return nil, err
}

// Lock returns the lock.
func (r *Holder) Lock() lockstep.Lock { return r.lock }

// Locker returns the Locker that the lock came from.
func (r *Holder) Locker() lockstep.Locker { return r.locker }

// Run runs the command, and releases the lock when the command has ended by itself or none of its
// processes is left. It returns the exit code of the command, 128 + n if signal n ended it. The
// error is a [*LostError], a [*StuckError] or a [*StartError].
func (r *Holder) Run(c Command) (code int, err error) {
	defer signal.Stop(r.signals)
	h := &holding{Holder: r, command: c}
	code, err = h.hold()
	if h.stuck { // part of the command is alive: the service must not grant the lock to others
		return 0, err
	}
	r.holdUntil(h.keepUntil())
	r.Release(h.overseer.loss)
	return code, err
}

// holdUntil keeps the lock until the given time, unless something asks for an earlier end.
func (r *Holder) holdUntil(until time.Duration) {
	for Now() < until && r.lock.Check() == nil && r.claim.EndWith.due() == "" {
		timer := time.NewTimer(min(endWithInterval, until-Now()))
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

// Keep holds the lock until this process is asked to end, or until most has passed if that is not
// zero. It returns an error if the lock was lost.
func (r *Holder) Keep(most time.Duration) error {
	began := Now()
	look := time.NewTicker(holdInterval)
	defer look.Stop()
	for {
		select {
		case <-r.lock.Context().Done():
		case <-look.C:
		case sig := <-r.signals:
			if asksToEnd(sig) {
				return r.lock.Check()
			}
		}
		if err := r.lock.Check(); err != nil {
			return err
		}
		if r.claim.EndWith.due() != "" || most > 0 && Now() >= began+most {
			return nil
		}
	}
}

// holdInterval is the time between Keep's checks of EndWith and of the lease.
const holdInterval = 100 * time.Millisecond

// heed stops this process if sig is SIGTSTP (ctrl-Z), which is caught once a command was started.
// It reports whether sig asks this process to end.
func (r *Holder) heed(sig os.Signal) (ends bool) {
	if sig == syscall.SIGTSTP {
		stopSelf(r.signals)
	}
	return asksToEnd(sig)
}

type acquired struct {
	lock lockstep.Lock
	err  error
}

// acquire waits for the lock. If a signal asks us to end, or what EndWith names has ended, it
// cancels the request and waits until the Locker has withdrawn it; a later interrupt ends that
// wait.
func (r *Holder) acquire(ctx context.Context) (lockstep.Lock, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	result := make(chan acquired, 1)
	go func() {
		lock, err := r.locker.Acquire(ctx, r.claim.Name, r.claim.Options...)
		result <- acquired{lock, err}
	}()
	look := time.NewTicker(endWithInterval)
	defer look.Stop()
	defer r.waiting(ctx)()
	for end := error(nil); ; {
		select {
		case got := <-result:
			return r.granted(got, end)
		case <-look.C:
			if why := r.claim.EndWith.due(); why != "" && end == nil {
				end = &DueError{why}
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

// waiting calls [Claim.Waiting], if it is set.
func (r *Holder) waiting(ctx context.Context) (stop func()) {
	if r.claim.Waiting == nil {
		return func() {}
	}
	return r.claim.Waiting(ctx, r.locker)
}

// granted returns the outcome of a request; if end is set, the lock is no longer wanted.
func (r *Holder) granted(got acquired, end error) (lockstep.Lock, error) {
	if end == nil && got.lock != nil {
		if why := r.claim.EndWith.due(); why != "" { // just as the lock was granted
			end = &DueError{why}
		}
	}
	if end == nil {
		return got.lock, got.err
	}
	if got.lock != nil {
		r.lock = got.lock
		r.Release(nil)
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
	return &SignalError{number}
}

// Release releases the lock and ends the session; loss is why the lock was lost, or nil. For a
// revoked lock, this is the acknowledgement that the service waits for. A failure is reported and
// returned. It delays others by at most the rest of the lease; the command still counts as
// successful, since it ran under the lock.
func (r *Holder) Release(loss error) error {
	patience := closeTimeout
	if loss != nil && !revoked(loss) {
		patience = closeTimeoutLost
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
			r.claim.Report(ReleaseUnconfirmed{err})
		}
		r.leave(patience)
		return err
	case <-r.hurry():
		return lockstep.ErrUncertain
	}
}

// Leave ends the session without releasing the lock, which was detached.
func (r *Holder) Leave() { r.leave(closeTimeout) }

// leave ends the session, so that no claim of this run stays in a queue. After it, signals have
// their usual effect again.
func (r *Holder) leave(patience time.Duration) {
	defer signal.Stop(r.signals)
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

// hurry returns a channel that is closed when the user interrupts the cleanup after the command.
// Other signals have no effect: a service manager that sends TERM to both run and the command wants
// both to end properly.
func (r *Holder) hurry() <-chan struct{} {
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
