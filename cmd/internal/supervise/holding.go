//go:build unix

package supervise

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stuckAfter is how long a killed command may take to disappear. Only a process that hangs in
	// the kernel, or belongs to another user, takes longer than milliseconds.
	stuckAfter = 10 * time.Second
	// killInterval is the time between kills of what is left of a command, and between checks of a
	// lease that is too short to start one.
	killInterval = 5 * time.Millisecond
)

// A holding is the time during which a run has its lock.
type holding struct {
	*Holder
	command   Command
	resigns   bool // TERM and INT to this process end the command, and are not passed on
	overseer  overseer
	child     *child
	terminal  *terminal
	wanted    bool            // the command should own the terminal's foreground
	lost      <-chan struct{} // Done of the lock's context; nil once seen
	ended     bool            // the command itself has ended, with status
	status    exitStatus
	empty     bool          // no descendant of the command is left
	killedAt  time.Duration // zero: not killed
	stuck     bool          // part of the command may still be alive
	kept      bool          // keep has reported that the lock is kept for a command that does not end
	abandoned bool          // the user does not want to wait for that command
	started   time.Duration // when the command was started
}

// hold runs the command to its end and returns its exit code.
func (h *holding) hold() (int, error) {
	h.overseer = overseer{killAfter: h.command.KillAfter, drain: h.command.Drain, resigns: h.resigns}
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
		case Now()-h.killedAt > stuckAfter && (h.overseer.loss != nil || h.abandoned):
			return h.giveUp()
		case Now()-h.killedAt > stuckAfter:
			h.keep()
		default: // for processes started or reparented during the last kill
			h.child.Kill()
		}
	}
}

// keepUntil returns the time until which AtLeast keeps the lock, or zero if no command was started
// or the lock is lost.
func (h *holding) keepUntil() time.Duration {
	if h.started == 0 || h.overseer.loss != nil {
		return 0
	}
	return h.started + h.command.AtLeast
}

// awaitLease waits until the lease is long enough to start a command. A grant may arrive while the
// renewal of the session is failing.
func (h *holding) awaitLease() error {
	for h.lock.Check() == nil && h.lock.Remaining() <= h.overseer.killAfter {
		time.Sleep(killInterval)
	}
	if err := h.lock.Check(); err != nil {
		h.overseer.loss = err
		return &LostError{Token: h.lock.Token(), Err: err}
	}
	return nil
}

// start starts the command, which is watched from its first instruction on.
func (h *holding) start() error {
	notifyPassing(h.signals)
	h.terminal, _ = openTerminal()
	h.lost = h.lock.Context().Done()
	h.overseer.validUntil = h.validUntil()
	child, err := startChild(program{
		path:    h.command.Path,
		args:    h.command.Args,
		env:     h.command.Env(h.lock),
		signals: h.inherited,
	}, h.overseer.validUntil)
	if err != nil {
		return &StartError{err}
	}
	h.child = child
	ignoreStops()
	if h.terminal != nil && h.terminal.Whole() {
		h.wanted = true
		h.giveTerminal()
	}
	h.started = Now()
	if err := child.Go(); err != nil {
		h.obey(h.overseer.kill())
	}
	return nil
}

// validUntil returns the end of the lease. The clock is read first, so that a pause in between
// makes it too early rather than too late.
func (h *holding) validUntil() time.Duration { return Now() + h.lock.Remaining() }

func (h *holding) look() orders {
	validUntil := h.validUntil()
	out := h.overseer.look(Now(), validUntil, h.lock.Check())
	if why := h.claim.EndWith.due(); why != "" {
		out.add(h.overseer.hurry(Now(), Due{why}))
	}
	if most := h.command.MaxHold; most > 0 && Now() >= h.started+most {
		out.add(h.overseer.hurry(Now(), HeldTooLong{most}))
	}
	return out
}

// wait blocks until something happens, and returns what to do about it.
func (h *holding) wait() func() {
	pause := h.overseer.wake(Now())
	if h.killedAt > 0 && !h.kept {
		pause = min(pause, killInterval)
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
	if o.say != nil {
		h.claim.Report(o.say)
	}
	for _, sig := range o.signals {
		send := h.child.Signal
		if o.all {
			send = h.child.SignalAll
		}
		h.note(send(sig))
	}
	if o.kill {
		h.killedAt = Now()
		h.note(h.child.Kill())
	}
	if o.feed > 0 {
		h.child.Feed(o.feed) // if the watcher has died, a change of the child reports it
	}
}

func (h *holding) note(err error) {
	if err != nil {
		h.claim.Report(Failed{err})
	}
}

// relay passes a signal on to the command.
func (h *holding) relay(sig os.Signal) {
	h.abandoned = h.abandoned || h.kept && hurries(sig)
	if sig == unix.SIGCONT && h.wanted {
		h.giveTerminal()
	}
	h.obey(h.overseer.signal(Now(), sig))
}

// giveTerminal makes the command's process group the foreground one. If that fails, the command
// still gets its signals from us.
func (h *holding) giveTerminal() {
	if err := h.terminal.Give(h.child.Group()); err != nil {
		h.claim.Report(Failed{err})
	}
}

// changed handles a change of the child.
func (h *holding) changed(change change) {
	switch change.what {
	case childStopped:
		h.stopped(change.signal)
	case childEnded:
		h.ended, h.status = true, change.status
		h.child.MarkEnded()
	case childEmpty:
		h.empty = true
	case childOverdue: // even if the lock turns out to have been renewed in the meantime
		h.obey(h.overseer.overdue())
	case childUnwatched:
		h.obey(h.overseer.unwatched())
	}
}

// over reports whether only the release of the lock is left to do. If the command ended by itself,
// its descendants may keep running; if it is being stopped, they must end too.
func (h *holding) over() bool {
	return h.empty || h.ended && h.overseer.phase == running && !h.command.WaitAll
}

// stopped handles a stopped child. A shell that waits for us must see us stop as well, or its user
// never gets a prompt. Without a terminal there is no such shell, and we keep renewing the lock.
func (h *holding) stopped(by unix.Signal) {
	switch {
	case h.overseer.phase == killed:
	case h.overseer.phase == ending:
		h.note(h.child.Signal(unix.SIGCONT))
	case h.terminal == nil:
		h.claim.Report(CommandStopped{Signal: unix.SignalName(by), Group: int(h.child.Group())})
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
		h.claim.Report(Suspending{h.lock.Remaining()})
		stopSelf(h.signals) // relay continues from here: we receive SIGCONT
	}
}
