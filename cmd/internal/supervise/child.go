//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// watcherStart bounds how long a watcher may take to report that it is ready.
	watcherStart = 10 * time.Second
	// watcherEnd bounds how long it may take to end when asked to.
	watcherEnd = 2 * time.Second
	// feedPatience bounds a write to the watcher. The pipe holds 64 KiB, or 7,000 messages, so it
	// fills up only if the watcher is frozen for a long time.
	feedPatience = time.Second
	// sweepPause is the interval between kills of what a dead watcher left behind.
	sweepPause = 10 * time.Millisecond
)

// A Command says what a child is to become.
type Command struct {
	Path string   // of the executable, as returned by [exec.LookPath]
	Args []string // starting with the name of the program
	Env  []string // the complete environment
	// Signals are the signal settings to inherit from before this program started; see
	// [SignalsAtStart].
	Signals Signals
}

// A Child is a command together with its watcher, which is its parent. The command leads its own
// process group, and inherits the standard files and everything else that this program was started
// with. A Child is used by one goroutine.
type Child struct {
	watcher int // its process id
	group   Group
	ended   bool  // the command itself has ended
	before  []int // our children that are unrelated to the command
	feed    *os.File
	changes chan Change
	gone    chan struct{} // closed when the watcher has ended
	let     sync.Once     // closes released
	// released is closed when nobody needs further changes, or wants anything else killed.
	released chan struct{}
	blind    atomic.Bool // the watcher is gone and has not reported that nothing is left
}

// A Change reports what happened to a child.
type Change struct {
	What   What
	Signal unix.Signal // the signal that stopped it
	Status Status      // how it ended
}

// What says what happened to a child.
type What int

// The kinds of changes. Ended comes once. After it, Empty comes once, and then nothing else.
const (
	Stopped   What = iota // the command was stopped by a signal
	Ended                 // the command itself has ended; descendants may be left
	Empty                 // no descendant of the command is left
	Overdue               // the watcher saw the deadline pass, and is killing everything
	Unwatched             // the watcher was killed; everything is being killed
)

// StartChild starts a watcher and, below it, a process in its own group that waits for [Child.Go].
// It returns once the watcher knows the deadline.
func StartChild(c Command, deadline time.Duration) (*Child, error) {
	child := &Child{changes: make(chan Change), gone: make(chan struct{}), released: make(chan struct{})}
	child.before = pids(below(unix.Getpid(), nil))
	if err := checkClock(); err != nil {
		return nil, fmt.Errorf("start the watcher: %w", err)
	}
	report, err := child.launch(c.Env)
	if err != nil {
		return nil, fmt.Errorf("start the watcher: %w", err)
	}
	if err := child.introduce(c, deadline, report); err != nil {
		child.feed.Close()
		report.Close()
		unix.Kill(child.watcher, unix.SIGKILL)
		return nil, err
	}
	go child.listen(report)
	return child, nil
}

func pids(all []Process, err error) []int {
	var numbers []int
	for _, p := range all {
		numbers = append(numbers, p.PID)
	}
	return numbers
}

// launch starts the watcher, and returns the pipe on which it reports.
func (c *Child) launch(env []string) (report *os.File, err error) {
	path, err := self()
	if err != nil {
		return nil, err
	}
	files := &closer{}
	defer files.close()
	in, feed := files.pipe()
	report, out := files.pipe()
	null := files.null()
	if files.err != nil {
		return nil, files.err
	}
	fds := []int{files.inherited(in), files.inherited(out), files.copied(0), files.copied(1), files.copied(2)}
	if files.err != nil {
		return nil, files.err
	}
	c.watcher, err = syscall.ForkExec(path, append([]string{watcherName, watcherArgument}, numbers(fds...)...), &syscall.ProcAttr{
		Env:   env,
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true}, // keep signals to our group away from the watcher
	})
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, limits())
	}
	files.keep(feed, report)
	c.feed = feed
	return report, nil
}

// introduce sends the watcher the command and the deadline, and waits until it is ready.
func (c *Child) introduce(command Command, deadline time.Duration, report *os.File) error {
	c.feed.SetWriteDeadline(time.Now().Add(watcherStart))
	path, err := self()
	if err != nil {
		return err
	}
	words := append([]string{path, command.Signals.word(), command.Path}, command.Args...)
	err = sendWords(c.feed, words)
	if err == nil {
		err = c.Feed(deadline)
	}
	report.SetReadDeadline(time.Now().Add(watcherStart))
	m, errRead := readMessage(report)
	switch {
	case errRead != nil:
		return fmt.Errorf("start the watcher: it exited, or did not respond within %v (%w)%s", watcherStart, errors.Join(err, errRead), limits())
	case m.kind != reportReady:
		return fmt.Errorf("start the command: %s%s", failure(m.value), limits())
	}
	report.SetReadDeadline(time.Time{})
	c.group = Group(m.value)
	return nil
}

func failure(value int64) string {
	if value < 0 {
		return unix.Errno(-value).Error()
	}
	return fmt.Sprintf("its first process exited with code %d before it was ready", Status{unix.WaitStatus(value)}.Code())
}

// limits lists the resource limits of the process that can prevent a program from starting.
func limits() string {
	var words string
	for _, l := range []struct {
		resource int
		name     string
		unit     uint64
	}{{unix.RLIMIT_NPROC, "ulimit -u", 1}, {unix.RLIMIT_AS, "ulimit -v", 1024}} {
		var now unix.Rlimit
		if unix.Getrlimit(l.resource, &now) == nil && now.Cur < 1<<62 {
			words += fmt.Sprintf(", %s is %d", l.name, now.Cur/l.unit)
		}
	}
	if words == "" {
		return ""
	}
	return "; a watcher needs about 10 threads and 1 GiB of address space in addition to the command" + words
}

// listen handles the reports of the watcher.
func (c *Child) listen(report *os.File) {
	defer report.Close()
	var ended, empty bool
	for !empty {
		m, err := readMessage(report)
		if err != nil {
			break
		}
		ended, empty = ended || m.kind == reportEnded, m.kind == reportEmpty
		c.tell(m)
	}
	if !empty {
		c.blind.Store(true)
	}
	for !c.blind.Load() { // until the watcher ends
		if _, err := readMessage(report); err != nil {
			break
		}
	}
	close(c.gone)
	if !empty {
		c.sweep(ended)
	}
}

func (c *Child) tell(m message) {
	switch m.kind {
	case reportStopped:
		c.send(Change{What: Stopped, Signal: unix.Signal(m.value)})
	case reportEnded:
		c.send(Change{What: Ended, Status: Status{unix.WaitStatus(m.value)}})
	case reportEmpty:
		c.send(Change{What: Empty})
	case reportOverdue:
		c.send(Change{What: Overdue})
	}
}

func (c *Child) send(change Change) (wanted bool) {
	select {
	case c.changes <- change:
		return true
	case <-c.released:
		return false
	}
}

// sweep kills what a killed watcher left behind, until nothing is left or the child is released.
func (c *Child) sweep(ended bool) {
	if !c.send(Change{What: Unwatched}) {
		return
	}
	for c.left(c.group) {
		c.kill(ended)
		select {
		case <-c.released:
			return
		case <-time.After(sweepPause):
		}
	}
	if !ended {
		c.send(Change{What: Ended, Status: Status{unix.WaitStatus(unix.SIGKILL)}})
	}
	c.send(Change{What: Empty})
}

func (c *Child) left(g Group) bool {
	found, err := c.below()
	return err != nil && g.Exists() || len(living(found)) > 0
}

// Go lets the child become its command.
func (c *Child) Go() error { return c.say(message{kind: watchGo}) }

// Feed moves the deadline, possibly to an earlier time. It waits at most one second. If the watcher
// was stopped, it is continued. An error means that the watcher is no longer of use, which is also
// reported as a change of the child.
func (c *Child) Feed(deadline time.Duration) error {
	c.signalWatcher(unix.SIGCONT)
	return c.say(message{watchDeadline, int64(deadline)})
}

func (c *Child) say(m message) error {
	c.feed.SetWriteDeadline(time.Now().Add(feedPatience))
	if _, err := c.feed.Write(m.encode()); err != nil {
		return fmt.Errorf("feed the watcher: %w", err)
	}
	return nil
}

func (c *Child) signalWatcher(sig unix.Signal) {
	select {
	case <-c.gone: // its process id may have been reused
	default:
		unix.Kill(c.watcher, sig)
	}
}

// Changes returns the channel of changes. It must be read until Empty or Release.
func (c *Child) Changes() <-chan Change { return c.changes }

// Group returns the process group that the command leads.
func (c *Child) Group() Group { return c.group }

// MarkEnded records that Ended was read from [Child.Changes]: the id of the group may be reused
// once its last process is gone.
func (c *Child) MarkEnded() { c.ended = true }

// Signal sends sig to the process group of the command.
func (c *Child) Signal(sig unix.Signal) error {
	if !c.ended {
		return c.group.Signal(sig)
	}
	return c.signalEach(sig, func(p Process) bool { return p.group == int(c.group) })
}

// SignalAll sends sig to all descendants of the command. Processes that end leave their children to
// another parent, where a listing may miss them. So processes are listed once before the command's
// own group gets the signal, and then again until there are no new ones.
func (c *Child) SignalAll(sig unix.Signal) error {
	seen := map[int]bool{}
	_, err := c.signalNew(sig, seen)
	if !c.ended {
		err = errors.Join(err, c.group.Signal(sig))
	}
	for range stopPasses {
		if fresh, _ := c.signalNew(sig, seen); !fresh {
			break
		}
	}
	return err
}

// signalNew sends sig to the descendants of the command that are outside its group and not in seen,
// and reports whether there were any. It adds them to seen.
func (c *Child) signalNew(sig unix.Signal, seen map[int]bool) (fresh bool, err error) {
	err = c.signalEach(sig, func(p Process) bool {
		if seen[p.PID] || !c.ended && p.group == int(c.group) {
			return false
		}
		fresh, seen[p.PID] = true, true
		return true
	})
	return fresh, err
}

func (c *Child) signalEach(sig unix.Signal, which func(Process) bool) error {
	found, err := c.below()
	if errors.Is(err, errNoTree) {
		return nil
	}
	for _, p := range found {
		if which(p) {
			err = errors.Join(err, signalProcess(p.PID, sig))
		}
	}
	return err
}

// Kill kills all descendants of the command that it can find now. It must be repeated until [Empty]
// comes: it may miss processes that are started or reparented meanwhile.
func (c *Child) Kill() error { return c.kill(c.ended) }

// kill spares the group if the command itself has ended and its descendants can be listed: the id
// of the group may have been reused.
func (c *Child) kill(ended bool) error {
	g := c.group
	if _, err := c.below(); err == nil && ended {
		g = 0
	}
	return kill(g, c.below)
}

// Left lists the living descendants of the command, as far as they can be seen.
func (c *Child) Left() []Process {
	found, _ := c.below()
	return living(found)
}

// below lists the descendants of the command.
func (c *Child) below() ([]Process, error) {
	if !c.blind.Load() {
		return below(c.watcher, nil)
	}
	return below(unix.Getpid(), c.before)
}

// Release ends the watcher without harming what is left. Once it returns, the watcher no longer
// kills.
func (c *Child) Release() {
	c.let.Do(func() {
		close(c.released)
		c.signalWatcher(unix.SIGCONT)
		c.say(message{kind: watchNoMore})
		c.feed.Close()
	})
	timer := time.NewTimer(watcherEnd)
	defer timer.Stop()
	select {
	case <-c.gone:
	case <-timer.C: // frozen
		c.signalWatcher(unix.SIGKILL)
	}
}

// A Status says how a command ended.
type Status struct{ status unix.WaitStatus }

// Code returns the exit code, or 128 + n if signal n ended the command.
func (s Status) Code() int {
	if s.status.Signaled() {
		return 128 + int(s.status.Signal())
	}
	return s.status.ExitStatus()
}

// Signaled reports whether a signal ended the command.
func (s Status) Signaled() bool { return s.status.Signaled() }
