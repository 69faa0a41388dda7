//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// watchInterval is the longest sleep of a watcher. Timers stop during suspend, so it polls the
	// clock that does not stop; the service assumes that a holder is late by at most a quarter of a
	// second.
	watchInterval = 100 * time.Millisecond

	// Kills are repeated until nothing is left or killFor has passed. Only a process that hangs in
	// the kernel, or belongs to another user, takes longer than milliseconds.
	killFor   = 10 * time.Second
	killPause = 2 * time.Millisecond
)

// A guardian is the state of a watcher.
type guardian struct {
	group    processGroup  // zero until the command's first process is started
	deadline time.Duration // zero until the first one arrives
}

// take records a message and reports whether to continue.
func (g *guardian) take(m message) (more bool) {
	if m.kind == watchDeadline {
		g.deadline = time.Duration(m.value)
	}
	return m.kind != watchNoMore
}

// armed reports whether the guardian knows enough to kill.
func (g *guardian) armed() bool { return g.group.known() && g.deadline > 0 }

// due reports whether everything must be killed now.
func (g *guardian) due(now time.Duration) bool { return g.armed() && now >= g.deadline }

// sleep returns how long to wait for a message or a change of a child.
func (g *guardian) sleep(now time.Duration) time.Duration {
	if !g.armed() {
		return watchInterval
	}
	return min(watchInterval, max(0, g.deadline-now))
}

// A watcher is the process between this program and its command.
type watcher struct {
	guardian
	feed    *os.File // messages; ends when the parent ends
	report  *os.File
	errs    *os.File // the command's standard error, for what nothing else can report
	goOn    *os.File // a byte here lets the child become the command; nil once sent
	child   *os.File // readable when a child may have changed
	ready   bool     // readiness was reported
	ended   bool     // the command itself has ended
	empty   bool     // nothing is left
	killing bool
}

// watch is the main function of a watcher. Its arguments are the descriptors for messages in and
// out, and the standard files of the command.
func watch(args []string) int {
	// The command gets its parent-death signal when the thread that started it ends.
	runtime.LockOSThread()
	runtime.GOMAXPROCS(1)
	var feed, report int
	var f childFiles
	if !parseNumbers(args, &feed, &report, &f.in, &f.out, &f.errs) {
		return codeCannotExecute
	}
	unix.CloseOnExec(feed)
	unix.CloseOnExec(report)
	w := &watcher{feed: os.NewFile(uintptr(feed), "feed"), report: os.NewFile(uintptr(report), "report")}
	w.catchSignals()
	if err := errors.Join(becomeSubreaper(), w.start(f)); err != nil {
		return codeCannotExecute
	}
	w.loop()
	return 0
}

// catchSignals keeps the watcher alive when it gets signals meant for others ("killall lockstep").
// They are caught rather than ignored, since the command would inherit ignored signals.
func (w *watcher) catchSignals() {
	all := make(chan os.Signal, 1)
	for sig := syscall.Signal(1); sig < maxSignal; sig++ {
		if sig != unix.SIGCHLD && sig != unix.SIGURG && !signal.Ignored(sig) {
			signal.Notify(all, sig)
		}
	}
}

// start starts the child and waits until it is running.
func (w *watcher) start(f childFiles) error {
	words, err := receiveWords(w.feed)
	if err != nil || len(words) < 4 {
		return io.ErrUnexpectedEOF
	}
	if err := w.followChildren(); err != nil {
		return err
	}
	pid, here, err := w.fork(f, words)
	if err != nil {
		w.sendReport(reportFailed, -errnoOf(err))
		return err
	}
	w.group = processGroup(pid)
	w.errs = os.NewFile(uintptr(f.errs), "stderr")
	unix.CloseOnExec(f.errs)
	closeInherited()
	os.Chdir("/") // so that the watcher keeps no mount busy
	defer here.Close()
	if n, _ := here.Read(make([]byte, 1)); n == 1 { // end of file means that the child has ended
		return nil
	}
	var status unix.WaitStatus
	unix.Wait4(pid, &status, 0, nil)
	w.sendReport(reportFailed, int64(status))
	return io.ErrUnexpectedEOF
}

// fork starts the child, which reports on here that it is running. The first word is the path of
// this program, as our parent found it.
func (w *watcher) fork(f childFiles, words []string) (pid int, here *os.File, err error) {
	files := &closer{}
	defer files.close()
	wait, goOn := files.pipe()
	here, said := files.pipe()
	null := files.null()
	if files.err != nil {
		return 0, nil, files.err
	}
	f.wait, f.here = files.inherited(wait), files.inherited(said)
	args := append([]string{childName, childArgument}, f.words()...)
	pid, err = syscall.ForkExec(words[0], append(args, words[1:]...), &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd()},
		Sys:   childAttributes(),
	})
	if err != nil {
		return 0, nil, err
	}
	files.keep(goOn, here)
	w.goOn = goOn
	return pid, here, nil
}

func errnoOf(err error) int64 {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		errno = unix.EIO
	}
	return int64(errno)
}

// followChildren makes w.child readable for each SIGCHLD.
func (w *watcher) followChildren() error {
	r, wake, err := os.Pipe()
	if err != nil {
		return err
	}
	w.child = r
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGCHLD)
	go func() {
		for range changed {
			wake.Write([]byte{'\n'})
		}
	}()
	return nil
}

// loop runs until the watcher is asked to stop, or until everything was killed.
func (w *watcher) loop() {
	for {
		wait := w.sleep(Now())
		if w.empty {
			wait = watchInterval // there is nothing to kill
		}
		next, err := w.next(wait)
		w.reap()
		switch {
		case err != nil: // the parent is gone
			w.killAll()
			w.complain()
			return
		case next.kind == 0 && w.due(Now()) && !w.empty:
			w.sendReport(reportOverdue, 0)
			w.killAll()
			w.linger()
			return
		case next.kind == watchGo && w.goOn != nil:
			w.goOn.Write([]byte{'\n'})
			w.goOn.Close()
			w.goOn = nil
		case next.kind != 0 && !w.take(next):
			return
		}
		if w.armed() && !w.ready {
			w.ready = true
			w.sendReport(reportReady, int64(w.group))
		}
	}
}

func (w *watcher) sendReport(k kind, value int64) { w.report.Write(message{k, value}.encode()) }

// next waits for a message, and returns the zero message if none came. It polls even if the
// deadline has passed: a waiting message may move a deadline that passed while only this process
// was frozen. If the parent was frozen too, there is no message.
func (w *watcher) next(wait time.Duration) (message, error) {
	readable := []unix.PollFd{{Fd: int32(w.feed.Fd()), Events: unix.POLLIN}, {Fd: int32(w.child.Fd()), Events: unix.POLLIN}}
	_, err := unix.Poll(readable, int((wait+time.Millisecond-1)/time.Millisecond))
	if errors.Is(err, unix.EINTR) {
		return message{}, nil
	}
	if readable[1].Revents != 0 {
		w.child.Read(make([]byte, 64))
	}
	if readable[0].Revents == 0 {
		return message{}, nil
	}
	return readMessage(w.feed)
}

// reap collects ended children, including those that were reparented to the watcher, and reports
// the changes that the parent needs.
func (w *watcher) reap() {
	for !w.empty {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WUNTRACED|waitAll, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // no child is left
			if lingers(w.group) {
				return
			}
			w.empty = true
			w.sendReport(reportEmpty, 0)
		case pid == 0:
			return
		case pid != int(w.group) || w.ended: // another process, or a reused id
		case status.Stopped():
			if !w.killing {
				w.sendReport(reportStopped, int64(status.StopSignal()))
			}
		default:
			w.ended = true
			w.sendReport(reportEnded, int64(status))
		}
	}
}

// killAll kills everything below this process, until nothing is left or killFor has passed.
func (w *watcher) killAll() {
	w.killing = true
	list := func() ([]Process, error) { return below(unix.Getpid(), nil) }
	for end := Now() + killFor; !w.empty && Now() < end; {
		g := w.group
		if _, err := list(); err == nil && w.ended { // its id may have been reused
			g = 0
		}
		kill(g, list)
		if w.reap(); !w.empty {
			time.Sleep(killPause)
		}
	}
}

// complain reports what could not be killed, if nothing else can report it.
func (w *watcher) complain() {
	if w.empty {
		return
	}
	found, _ := below(unix.Getpid(), nil)
	fmt.Fprintf(w.errs, "lockstep: run was killed, and its command continues without the lock: %s cannot be killed by this user, or hangs\n", Name(living(found)))
}

// linger waits while the parent is frozen or still at work: once the watcher ends, the processes
// that it leaves are no longer below it.
func (w *watcher) linger() {
	for !w.empty {
		next, err := w.next(watchInterval)
		if w.reap(); err != nil || next.kind == watchNoMore {
			return
		}
	}
}

// closeInherited closes what the parent's own parent left open for the command: otherwise a reader
// of such a pipe would also wait for the watcher to end. Descriptors marked close-on-exec are our
// own and stay open.
func closeInherited() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		entries, err = os.ReadDir("/dev/fd")
	}
	if err != nil {
		return
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}
