//go:build unix

package term

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
	// watcherStart bounds the time in which a watcher must say that it is ready.
	watcherStart = 10 * time.Second
	// watcherEnd bounds the time in which it must end when it was told to.
	watcherEnd = 2 * time.Second
	// feedPatience bounds a write to the watcher. The pipe holds 64 KiB, 7,000
	// messages, so only one that is frozen for long lets it run full.
	feedPatience = time.Second
	// sweepPause is the pause between two kills of what a dead watcher left.
	sweepPause = 10 * time.Millisecond
)

// A Command is what a child is to become.
type Command struct {
	Path string   // of the file to execute, as [exec.LookPath] found it
	Args []string // with the name of the program first
	Env  []string // all of it
	// Signals are what it inherits from before this program started; see [SignalsAtStart].
	Signals Signals
}

// A Child is a command with its watcher, which is its parent. The command leads a process group of its
// own, and inherits the standard files and everything else that this program was started
// with. One goroutine uses a Child.
type Child struct {
	watcher int // its process number
	group   Group
	ended   bool  // the command itself has ended
	before  []int // our children that have nothing to do with the command
	feed    *os.File
	changes chan Change
	gone    chan struct{} // closed when the watcher has ended
	let     sync.Once     // closes released
	// released is closed when nobody wants to know more, or be rid of more.
	released chan struct{}
	blind    atomic.Bool // the watcher is gone and did not say that nothing is left
}

// A Change is news of a child.
type Change struct {
	What   What
	Signal unix.Signal // that stopped it
	Status Status      // with which it ended
}

// What happened to a child.
type What int

// The kinds of news. Ended comes once; after it Empty comes once, and nothing else.
const (
	Stopped   What = iota // the command was stopped by a signal
	Ended                 // the command itself has ended; others that descend from it may be left
	Empty                 // nothing that descends from the command is left
	Overdue               // the watcher has seen the deadline pass, and kills everything
	Unwatched             // the watcher was killed; everything is being killed
)

// StartChild starts a watcher and, below it, a process that waits for [Child.Go] in a group of
// its own. It returns when the watcher knows the deadline.
func StartChild(c Command, deadline time.Duration) (*Child, error) {
	child := &Child{changes: make(chan Change), gone: make(chan struct{}), released: make(chan struct{})}
	child.before = pids(below(unix.Getpid(), nil))
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

// launch starts the watcher, and returns where it reports.
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
		Sys:   &syscall.SysProcAttr{Setpgid: true}, // what hits our group is to leave the watcher alone
	})
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, limits())
	}
	files.keep(feed, report)
	c.feed = feed
	return report, nil
}

// introduce tells the watcher what to start and until when, and waits until it is ready.
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
		return fmt.Errorf("start the watcher: it ended, or did not answer within %v (%w)%s", watcherStart, errors.Join(err, errRead), limits())
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
	return fmt.Sprintf("its first process ended with code %d before it was ready", Status{unix.WaitStatus(value)}.Code())
}

// limits names the limits of the process that keep a program from being started.
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

// listen passes on what the watcher reports.
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
	for !c.blind.Load() { // until it ends
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

// sweep kills what a watcher that was killed has left, until nothing is left or the child is
// released.
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

// Feed moves the deadline, which may also come nearer. It waits at most one
// second. A watcher that somebody has stopped is continued. An error says that the watcher is of no more use, which
// is news of the child too.
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
	case <-c.gone: // and its number may be another's
	default:
		unix.Kill(c.watcher, sig)
	}
}

// Changes is where news of the child comes. It must be read until Empty, or until Release.
func (c *Child) Changes() <-chan Change { return c.changes }

// Group is the process group that the command leads.
func (c *Child) Group() Group { return c.group }

// MarkEnded says that the Ended of [Child.Changes] was read: the number of the group may be
// a stranger's once its last process is gone.
func (c *Child) MarkEnded() { c.ended = true }

// Signal sends sig to the process group of the command.
func (c *Child) Signal(sig unix.Signal) error {
	if !c.ended {
		return c.group.Signal(sig)
	}
	return c.signalEach(sig, func(p Process) bool { return p.group == int(c.group) })
}

// SignalAll sends sig to everything that descends from the command. What the signal ends leaves its children to
// another parent, where a look may miss them: the first look is before the command's own group gets the signal, and
// looks follow until none finds a new process.
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

// signalNew sends sig to what descends from the command, is outside its group and is not in seen, and reports whether there
// was any. A process that has been signalled is in seen.
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

// Kill kills everything that descends from the command, as far as it can be found now. It is to
// be repeated until [Empty] comes: what was started or changed its parent meanwhile may have been missed.
func (c *Child) Kill() error { return c.kill(c.ended) }

// kill leaves the group alone when the command itself has ended and what descends from it can be listed: the number
// of the group may be a stranger's.
func (c *Child) kill(ended bool) error {
	g := c.group
	if _, err := c.below(); err == nil && ended {
		g = 0
	}
	return kill(g, c.below)
}

// Left lists what descends from the command and is alive, as far as can be seen.
func (c *Child) Left() []Process {
	found, _ := c.below()
	return living(found)
}

// below lists what descends from the command.
func (c *Child) below() ([]Process, error) {
	if !c.blind.Load() {
		return below(c.watcher, nil)
	}
	return below(unix.Getpid(), c.before)
}

// Release ends the watcher without harm to what is left. When it returns, the watcher
// no longer kills.
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

// A Status is how a command ended.
type Status struct{ status unix.WaitStatus }

// Code is the exit code, or 128 + n for a command that signal n ended.
func (s Status) Code() int {
	if s.status.Signaled() {
		return 128 + int(s.status.Signal())
	}
	return s.status.ExitStatus()
}

// Signaled reports whether a signal ended the command.
func (s Status) Signaled() bool { return s.status.Signaled() }
