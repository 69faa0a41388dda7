//go:build unix

package cli

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstep-dev/lockstep/cmd/internal/supervise"
)

const (
	// stuckAfter is how long a killed command may take to disappear. Only a process that hangs in
	// the kernel, or belongs to another user, takes longer than milliseconds.
	stuckAfter = 10 * time.Second
	// killLook is the interval between kills of what is left of a command, and between checks of a
	// lease that is too short to start one.
	killLook = 5 * time.Millisecond
)

// A holding is the time during which a run has its lock.
type holding struct {
	*runner
	plan     runPlan
	resigns  bool // TERM and INT to us mean the end of the command, and are not passed on
	overseer overseer
	child    *supervise.Child
	terminal *supervise.Terminal
	wanted   bool            // the command should own the terminal's foreground
	lost     <-chan struct{} // Done of the lock's context; nil once seen
	ended    bool            // the command itself has ended, with status
	status   supervise.Status
	empty    bool          // no descendant of the command is left
	killedAt time.Duration // zero: not killed
	stuck    bool          // part of the command may still be alive
	kept     bool          // the user was told that the lock is kept for a command that does not end
	left     bool          // the user does not want to wait for it
	started  time.Duration // when the command was started
}

// hold runs the command to its end and returns its exit code.
func (h *holding) hold() (int, error) {
	h.overseer = overseer{killAfter: h.plan.killAfter, drain: h.plan.drain, resigns: h.resigns}
	if ttl := h.locker.Capabilities().TTL; ttl > 0 { // as negotiated
		h.overseer.killAfter = min(h.overseer.killAfter, ttl/3)
	}
	if err := h.awaitLease(); err != nil {
		return 0, err
	}
	if err := h.start(); err != nil {
		return 0, err
	}
	h.obey(h.look())
	for {
		act := h.wait()
		h.obey(h.look()) // first, since everything may have been frozen
		act()
		switch {
		case h.over():
			return h.finish()
		case h.killedAt == 0:
		case supervise.Now()-h.killedAt > stuckAfter && (h.overseer.loss != nil || h.left):
			return h.giveUp()
		case supervise.Now()-h.killedAt > stuckAfter:
			h.keep()
		default: // for processes started or reparented during the last kill
			h.child.Kill()
		}
	}
}

// keepUntil returns how long --at-least keeps the lock, or zero if no command was started or the
// lock is lost.
func (h *holding) keepUntil() time.Duration {
	if h.started == 0 || h.overseer.loss != nil {
		return 0
	}
	return h.started + h.plan.atLeast
}

// awaitLease waits until the lease is long enough to start a command. A grant may arrive while the
// renewal of the session is failing.
func (h *holding) awaitLease() error {
	for h.lock.Check() == nil && h.lock.Remaining() <= h.overseer.killAfter {
		time.Sleep(killLook)
	}
	if err := h.lock.Check(); err != nil {
		h.overseer.loss = err
		return exitError{CodeLost, err}
	}
	return nil
}

// start starts the command, which is watched from its first instruction on.
func (h *holding) start() error {
	supervise.NotifyPassing(h.signals)
	h.terminal, _ = supervise.OpenTerminal()
	h.lost = h.lock.Context().Done()
	h.overseer.validUntil = h.validUntil()
	child, err := supervise.StartChild(supervise.Command{
		Path:    h.plan.command[0],
		Args:    h.plan.command[1:],
		Env:     environment(h.lock, h.runner.plan),
		Signals: h.inherited,
	}, h.overseer.validUntil)
	if err != nil {
		return exitError{CodeNotRunnable, err}
	}
	h.child = child
	supervise.IgnoreStops()
	if h.terminal != nil && h.terminal.Whole() {
		h.wanted = true
		h.giveTerminal()
	}
	h.started = supervise.Now()
	if err := child.Go(); err != nil {
		h.obey(h.overseer.kill())
	}
	return nil
}

// validUntil returns the end of the lease. The clock is read first, so that a pause in between
// makes it too early rather than too late.
func (h *holding) validUntil() time.Duration { return supervise.Now() + h.lock.Remaining() }

func (h *holding) look() orders {
	validUntil := h.validUntil()
	out := h.overseer.look(supervise.Now(), validUntil, h.lock.Check())
	if why := h.runner.plan.endWith.due(); why != "" {
		out.add(h.overseer.hurry(supervise.Now(), why+": stopping the command"))
	}
	if most := h.plan.maxHold; most > 0 && supervise.Now() >= h.started+most {
		out.add(h.overseer.hurry(supervise.Now(), fmt.Sprintf("running for %v, the limit of --max-hold: stopping the command", most)))
	}
	return out
}

// wait blocks until something happens, and returns what to do about it.
func (h *holding) wait() func() {
	pause := h.overseer.wake(supervise.Now())
	if h.killedAt > 0 && !h.kept {
		pause = min(pause, killLook)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.lost:
		h.lost = nil
	case sig := <-h.signals:
		return func() { h.relay(sig) }
	case change := <-h.child.Changes():
		return func() { h.changed(change) }
	}
	return func() {}
}

func (h *holding) obey(o orders) {
	if o.say != "" {
		h.say("%s", o.say)
	}
	for _, sig := range o.signals {
		send := h.child.Signal
		if o.all {
			send = h.child.SignalAll
		}
		h.note(send(sig))
	}
	if o.kill {
		h.killedAt = supervise.Now()
		h.note(h.child.Kill())
	}
	if o.feed > 0 {
		h.child.Feed(o.feed) // if the watcher has died, a change of the child reports it
	}
}

func (h *holding) note(err error) {
	if err != nil {
		h.say("%w", err)
	}
}

// relay passes a signal on to the command.
func (h *holding) relay(sig os.Signal) {
	h.left = h.left || h.kept && hurries(sig)
	if sig == unix.SIGCONT && h.wanted {
		h.giveTerminal()
	}
	h.obey(h.overseer.signal(supervise.Now(), sig))
}

// giveTerminal makes the command's process group the foreground one. If that fails, the command
// still gets its signals from us.
func (h *holding) giveTerminal() {
	if err := h.terminal.Give(h.child.Group()); err != nil {
		h.say("%w", err)
	}
}

// changed handles a change of the child.
func (h *holding) changed(change supervise.Change) {
	switch change.What {
	case supervise.Stopped:
		h.stopped(change.Signal)
	case supervise.Ended:
		h.ended, h.status = true, change.Status
		h.child.MarkEnded()
	case supervise.Empty:
		h.empty = true
	case supervise.Overdue: // even if the lock turns out to have been renewed in the meantime
		h.obey(h.overseer.overdue())
	case supervise.Unwatched:
		h.obey(h.overseer.unwatched())
	}
}

// over reports whether nothing is left to do but release the lock. What a command that ended by
// itself left running is left alone; of a command that is being stopped, nothing may remain.
func (h *holding) over() bool {
	return h.empty || h.ended && h.overseer.phase == running && !h.plan.waitAll
}

// stopped handles a stopped child. A shell that waits for us must see us stop as well, or its user
// never gets a prompt. Without a terminal there is no such shell, and the lock continues to be
// renewed.
func (h *holding) stopped(by unix.Signal) {
	switch {
	case h.overseer.phase == killed:
	case h.overseer.phase == ending:
		h.note(h.child.Signal(unix.SIGCONT))
	case h.terminal == nil:
		h.say("the command was stopped by %s; %s is still being renewed: continue it with kill -CONT %d, or end it with kill -TERM %d",
			unix.SignalName(by), printable(h.plan.name), h.child.Group(), os.Getpid())
	case (by == unix.SIGTTIN || by == unix.SIGTTOU) && h.terminal.Foreground():
		h.wanted = true // it wants the terminal, and nothing else in our pipeline has it
		h.giveTerminal()
		h.note(h.child.Signal(unix.SIGCONT))
	case !h.terminal.JobControl():
		if by == unix.SIGTSTP { // without us in between, the command would not have seen it
			h.note(h.child.Signal(unix.SIGCONT))
		}
	default:
		h.terminal.TakeBack()
		h.say("stopped: %s is not being renewed, and will be lost in %v unless continued",
			printable(h.plan.name), h.lock.Remaining().Round(100*time.Millisecond))
		supervise.StopSelf(h.signals) // relay continues from here: we receive SIGCONT
	}
}
