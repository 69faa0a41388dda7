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
	// sweepPause is the time between kills of what a dead watcher left behind.
	sweepPause = 10 * time.Millisecond
)

// A program says what a child executes.
type program struct {
	path string   // of the executable, as returned by [exec.LookPath]
	args []string // starting with the name of the program
	env  []string // the complete environment
	// signals are the settings to inherit from before this program started; see
	// signalsAtStart.
	signals signalSettings
}

// A child is a command together with its watcher, which is its parent. The command leads its own
// process group, and inherits the standard files and everything else that this program was started
// with. A child is used by one goroutine.
type child struct {
	watcher int // its process id
	group   processGroup
	ended   bool  // the command itself has ended
	before  []int // our children that are unrelated to the command
	feed    *os.File
	changes chan change
	gone    chan struct{} // closed when the watcher has ended
	release sync.Once     // closes released
	// released is closed when no further changes are needed and nothing else is to be killed.
	released  chan struct{}
	unwatched atomic.Bool // the watcher is gone and has not reported that nothing is left
}

// A change reports what happened to a child.
type change struct {
	what   whatHappened
	signal unix.Signal // the signal that stopped it
	status exitStatus  // how it ended
}

// whatHappened is the kind of a change.
type whatHappened int

// The kinds of changes. childEnded comes once. After it, childEmpty comes once, and then nothing
// else.
const (
	childStopped   whatHappened = iota // the command was stopped by a signal
	childEnded                         // the command itself has ended; descendants may be left
	childEmpty                         // no descendant of the command is left
	childOverdue                       // the watcher saw the deadline pass, and is killing everything
	childUnwatched                     // the watcher was killed; everything is being killed
)

// startChild starts a watcher and, below it, a process in its own group that waits for child.Go.
// It returns once the watcher knows the deadline.
func startChild(c program, deadline time.Duration) (*child, error) {
	child := &child{changes: make(chan change), gone: make(chan struct{}), released: make(chan struct{})}
	child.before = pids(below(unix.Getpid(), nil))
	if err := checkClock(); err != nil {
		return nil, fmt.Errorf("start the watcher: %w", err)
	}
	report, err := child.launch(c.env)
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
func (c *child) launch(env []string) (report *os.File, err error) {
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
func (c *child) introduce(command program, deadline time.Duration, report *os.File) error {
	c.feed.SetWriteDeadline(time.Now().Add(watcherStart))
	path, err := self()
	if err != nil {
		return err
	}
	words := append([]string{path, command.signals.word(), command.path}, command.args...)
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
	c.group = processGroup(m.value)
	return nil
}

func failure(value int64) string {
	if value < 0 {
		return unix.Errno(-value).Error()
	}
	return fmt.Sprintf("its first process exited with code %d before it was ready", exitStatus{unix.WaitStatus(value)}.Code())
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
func (c *child) listen(report *os.File) {
	defer report.Close()
	var ended, empty bool
	for !empty {
		m, err := readMessage(report)
		if err != nil {
			break
		}
		ended, empty = ended || m.kind == reportEnded, m.kind == reportEmpty
		c.forward(m)
	}
	if !empty {
		c.unwatched.Store(true)
	}
	for !c.unwatched.Load() { // until the watcher ends
		if _, err := readMessage(report); err != nil {
			break
		}
	}
	close(c.gone)
	if !empty {
		c.sweep(ended)
	}
}

func (c *child) forward(m message) {
	switch m.kind {
	case reportStopped:
		c.send(change{what: childStopped, signal: unix.Signal(m.value)})
	case reportEnded:
		c.send(change{what: childEnded, status: exitStatus{unix.WaitStatus(m.value)}})
	case reportEmpty:
		c.send(change{what: childEmpty})
	case reportOverdue:
		c.send(change{what: childOverdue})
	}
}

func (c *child) send(change change) (wanted bool) {
	select {
	case c.changes <- change:
		return true
	case <-c.released:
		return false
	}
}

// sweep kills what a killed watcher left behind, until nothing is left or the child is released.
func (c *child) sweep(ended bool) {
	if !c.send(change{what: childUnwatched}) {
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
		c.send(change{what: childEnded, status: exitStatus{unix.WaitStatus(unix.SIGKILL)}})
	}
	c.send(change{what: childEmpty})
}

func (c *child) left(g processGroup) bool {
	found, err := c.below()
	return err != nil && g.Exists() || len(living(found)) > 0
}

// Go lets the child become its command.
func (c *child) Go() error { return c.sendMessage(message{kind: watchGo}) }

// Feed moves the deadline, possibly to an earlier time. It waits at most one second. If the watcher
// was stopped, Feed continues it. An error means that the watcher no longer works, which a change
// of the child reports as well.
func (c *child) Feed(deadline time.Duration) error {
	c.signalWatcher(unix.SIGCONT)
	return c.sendMessage(message{watchDeadline, int64(deadline)})
}

func (c *child) sendMessage(m message) error {
	c.feed.SetWriteDeadline(time.Now().Add(feedPatience))
	if _, err := c.feed.Write(m.encode()); err != nil {
		return fmt.Errorf("feed the watcher: %w", err)
	}
	return nil
}

func (c *child) signalWatcher(sig unix.Signal) {
	select {
	case <-c.gone: // its process id may have been reused
	default:
		unix.Kill(c.watcher, sig)
	}
}

// Changes returns the channel of changes. It must be read until childEmpty or Release.
func (c *child) Changes() <-chan change { return c.changes }

// Group returns the process group that the command leads.
func (c *child) Group() processGroup { return c.group }

// MarkEnded records that childEnded was read from child.Changes: the id of the group may be reused
// once its last process is gone.
func (c *child) MarkEnded() { c.ended = true }

// Signal sends sig to the process group of the command.
func (c *child) Signal(sig unix.Signal) error {
	if !c.ended {
		return c.group.Signal(sig)
	}
	return c.signalEach(sig, func(p Process) bool { return p.group == int(c.group) })
}

// SignalAll sends sig to all descendants of the command. When a process ends, its children get
// another parent, where a listing may miss them. So SignalAll lists the processes once before the
// command's own group gets the signal, and then again until there are no new ones.
func (c *child) SignalAll(sig unix.Signal) error {
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
func (c *child) signalNew(sig unix.Signal, seen map[int]bool) (fresh bool, err error) {
	err = c.signalEach(sig, func(p Process) bool {
		if seen[p.PID] || !c.ended && p.group == int(c.group) {
			return false
		}
		fresh, seen[p.PID] = true, true
		return true
	})
	return fresh, err
}

func (c *child) signalEach(sig unix.Signal, which func(Process) bool) error {
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

// Kill kills all descendants of the command that it can find now. It must be repeated until
// childEmpty comes: it may miss processes that are started or reparented while it runs.
func (c *child) Kill() error { return c.kill(c.ended) }

// kill spares the group if the command itself has ended and its descendants can be listed: the id
// of the group may have been reused.
func (c *child) kill(ended bool) error {
	g := c.group
	if _, err := c.below(); err == nil && ended {
		g = 0
	}
	return kill(g, c.below)
}

// Left lists the living descendants of the command, as far as they can be seen.
func (c *child) Left() []Process {
	found, _ := c.below()
	return living(found)
}

// below lists the descendants of the command.
func (c *child) below() ([]Process, error) {
	if !c.unwatched.Load() {
		return below(c.watcher, nil)
	}
	return below(unix.Getpid(), c.before)
}

// Release ends the watcher without killing what is left. Once it returns, the watcher kills
// nothing.
func (c *child) Release() {
	c.release.Do(func() {
		close(c.released)
		c.signalWatcher(unix.SIGCONT)
		c.sendMessage(message{kind: watchNoMore})
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

// An exitStatus says how a command ended.
type exitStatus struct{ status unix.WaitStatus }

// Code returns the exit code, or 128 + n if signal n ended the command.
func (s exitStatus) Code() int {
	if s.status.Signaled() {
		return 128 + int(s.status.Signal())
	}
	return s.status.ExitStatus()
}

// Signaled reports whether a signal ended the command.
func (s exitStatus) Signaled() bool { return s.status.Signaled() }
