//go:build unix

package cli

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstep-dev/lockstep/cmd/internal/term"
)

const (
	// maxWatchers bounds how often a watcher that died is replaced within a run.
	maxWatchers = 16
	// stuckAfter is how long a killed command may take to be gone. Only a process
	// that hangs in the kernel takes longer than milliseconds.
	stuckAfter = 10 * time.Second
	// groupLook is the pause between two looks at what is left of the group.
	groupLook = 5 * time.Millisecond
	// leftoversAfter bounds the waiting for the rest of a killed group. It may
	// consist of zombies that nobody reaps.
	leftoversAfter = time.Second
)

// A holding is the time for which a run has its lock.
type holding struct {
	*runner
	plan     runPlan
	resigns  bool // TERM and INT to us are the end of the command, not messages for it
	overseer overseer
	child    *term.Child
	watcher  *term.Watcher
	watchers int // started so far
	terminal *term.Terminal
	wanted   bool // the command is to have the terminal's foreground
	parent   int
	changes  chan childChange
	lost     <-chan struct{} // of the lock's context; nil once it was seen
	killedAt time.Duration   // zero: it was not
	stuck    bool            // part of the command may be alive
}

type childChange struct {
	term.Change
	err error
}

// hold runs the command to its end and returns its exit code.
func (h *holding) hold() (int, error) {
	h.overseer = overseer{killAfter: h.plan.killAfter, resigns: h.resigns}
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
		h.obey(h.look()) // first, as everything may have been frozen
		if act() {
			return h.finish()
		}
		if h.killedAt > 0 && term.Now()-h.killedAt > stuckAfter {
			return h.giveUp()
		}
	}
}

// awaitLease waits until the lease is long enough to start a command with. A grant
// may come while the renewal of the session fails.
func (h *holding) awaitLease() error {
	for h.lock.Check() == nil && h.lock.Remaining() <= h.overseer.killAfter {
		time.Sleep(groupLook)
	}
	if err := h.lock.Check(); err != nil {
		h.overseer.loss = err
		return exitError{CodeLost, err}
	}
	return nil
}

// start brings the command to life, watched from its first instruction on.
func (h *holding) start() error {
	term.NotifyPassing(h.signals)
	h.parent = os.Getppid()
	h.terminal, _ = term.OpenTerminal()
	h.lost = h.lock.Context().Done()
	child, err := term.StartChild(term.Command{
		Path: h.plan.command[0],
		Args: h.plan.command[1:],
		Env:  environment(h.lock),
	})
	if err != nil {
		return exitError{CodeNotRunnable, err}
	}
	h.child = child
	h.overseer.validUntil = h.validUntil()
	if err := h.watch(); err != nil {
		child.Group().Signal(unix.SIGKILL)
		child.Reap()
		return exitError{CodeInternal, err}
	}
	term.IgnoreStops()
	if h.terminal != nil && h.terminal.Whole() {
		h.wanted = true
		h.giveTerminal()
	}
	h.changes = make(chan childChange)
	go h.follow()
	if err := child.Go(); err != nil {
		h.obey(h.overseer.kill())
	}
	return nil
}

// follow reports what becomes of the child, up to its end.
func (h *holding) follow() {
	for {
		change, err := h.child.Wait()
		h.changes <- childChange{change, err}
		if err != nil || change.Ended() {
			return
		}
	}
}

func (h *holding) watch() error {
	h.watchers++
	w, err := term.StartWatcher(h.child.Group(), h.overseer.validUntil)
	if err != nil {
		return err
	}
	h.watcher = w
	return nil
}

// validUntil is the end of the lease. The clock is read first, so that a pause in
// between makes it too early instead of too late.
func (h *holding) validUntil() time.Duration { return term.Now() + h.lock.Remaining() }

func (h *holding) look() orders {
	validUntil := h.validUntil()
	out := h.overseer.look(term.Now(), validUntil, h.lock.Check())
	if why := h.plan.endWith.due(h.parent); why != "" {
		out.add(h.overseer.hurry(term.Now(), why))
	}
	return out
}

// wait blocks until something happens, and returns what to do about it, which
// reports whether the command has ended.
func (h *holding) wait() func() bool {
	timer := time.NewTimer(h.overseer.wake(term.Now()))
	defer timer.Stop()
	goOn := func() bool { return false }
	select {
	case <-timer.C:
		return goOn
	case <-h.lost:
		h.lost = nil
		return goOn
	case sig := <-h.signals:
		return func() bool { h.relay(sig); return false }
	case <-h.watcher.Done():
		return func() bool { h.replaceWatcher(); return false }
	case change := <-h.changes:
		late := term.Now() >= h.overseer.validUntil // asked before a renewal moves it: this is what the watcher went by
		return func() bool { return h.changed(change, late) }
	}
}

func (h *holding) obey(o orders) {
	if o.say != "" {
		h.say("%s", o.say)
	}
	for _, sig := range o.signals {
		h.send(sig)
	}
	if o.kill {
		h.killedAt = term.Now()
		h.send(unix.SIGKILL)
	}
	if o.feed > 0 && h.watcher.Feed(o.feed) != nil {
		h.watcher.Kill() // frozen or gone; its end is noticed and it is replaced
	}
}

func (h *holding) send(sig unix.Signal) {
	if err := h.child.Group().Signal(sig); err != nil {
		h.say("%w", err)
	}
}

// relay passes a signal on to the command.
func (h *holding) relay(sig os.Signal) {
	if sig == unix.SIGCONT && h.wanted {
		h.giveTerminal()
	}
	h.obey(h.overseer.signal(term.Now(), sig))
}

func (h *holding) replaceWatcher() {
	if h.watchers >= maxWatchers || h.watch() != nil {
		h.watcher = &term.Watcher{} // its end is never seen
		h.obey(h.overseer.hurry(term.Now(), "the watcher cannot be started again: the command is stopped"))
	}
}

// giveTerminal makes the command's group the foreground one. Without it the command
// still gets its signals from us.
func (h *holding) giveTerminal() {
	if err := h.terminal.Give(h.child.Group()); err != nil {
		h.say("%w", err)
	}
}

// changed handles news of the child and reports whether it has ended. One whose end is late was killed by the watcher, also when the
// lock turns out to have been renewed since.
func (h *holding) changed(change childChange, late bool) bool {
	if change.err != nil || change.Ended() {
		if late && h.overseer.loss == nil {
			h.overseer.loss = errNotRenewed
		}
		return true
	}
	h.stopped(change.Stopped)
	return false
}

// stopped handles a child that was stopped. A shell that waits for us must see us
// stop as well, or its user never gets a prompt. Without a terminal there is no such
// shell, and the lock is renewed on.
func (h *holding) stopped(by unix.Signal) {
	switch {
	case h.overseer.phase != running:
		h.send(unix.SIGCONT)
	case h.terminal == nil:
	case (by == unix.SIGTTIN || by == unix.SIGTTOU) && h.terminal.Foreground():
		h.wanted = true // it wants the terminal, and nobody else of our pipeline has it
		h.giveTerminal()
		h.send(unix.SIGCONT)
	case !h.terminal.JobControl():
		if by == unix.SIGTSTP { // without us in between the command would not have seen it
			h.send(unix.SIGCONT)
		}
	default:
		h.terminal.TakeBack()
		h.say("stopped: %s is not renewed and is lost in %v unless continued before",
			printable(h.plan.name), h.lock.Remaining().Round(100*time.Millisecond))
		term.StopSelf(h.signals) // what follows is in relay, as we are told of SIGCONT
	}
}
