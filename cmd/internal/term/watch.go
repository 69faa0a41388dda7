//go:build unix

package term

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// watchLook is the longest sleep of a watcher. Timers stand still in suspend,
	// so it looks at the clock that does not; the service counts on a holder that
	// is late by a quarter of a second at most.
	watchLook = 100 * time.Millisecond

	// A kill is repeated until the group is gone or killTries are over, for a
	// process that joined the group in between.
	killTries = 40
	killPause = 5 * time.Millisecond
)

// A guardian is what a watcher knows.
type guardian struct {
	group    Group
	deadline time.Duration // zero before the first
}

// take stores a message and reports whether to go on.
func (w *guardian) take(m message) (more bool) {
	switch m.kind {
	case watchGroup:
		w.group = Group(m.value)
	case watchDeadline:
		w.deadline = time.Duration(m.value)
	case watchNoMore:
		return false
	}
	return true
}

// armed reports whether the guardian knows enough to do harm.
func (w *guardian) armed() bool { return w.group > 1 && w.deadline > 0 }

// due reports whether the group has to die now.
func (w *guardian) due(now time.Duration) bool { return w.armed() && now >= w.deadline }

// sleep is how long nothing can happen but a message.
func (w *guardian) sleep(now time.Duration) time.Duration {
	if !w.armed() {
		return watchLook
	}
	return min(watchLook, max(0, w.deadline-now))
}

// watch is the whole life of a watcher: messages come on the standard input, one
// byte goes to the standard output when it is armed.
func watch() int {
	// Signals that are meant for the parent may hit us too ("killall lockstep").
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	closeInherited()
	var w guardian
	for told := false; ; {
		switch next, err := nextMessage(w.sleep(Now())); {
		case err != nil: // the parent is gone
			w.kill()
			return 0
		case next.kind == 0 && w.due(Now()):
			w.kill()
			return 0
		case next.kind != 0 && !w.take(next):
			return 0
		}
		if w.armed() && !told {
			told = true
			os.Stdout.Write([]byte{'\n'})
			os.Stdout.Close()
		}
	}
}

// nextMessage waits for a message on the standard input; the zero message says that
// none came. It looks before it sleeps: a message that waits may move a deadline that
// has passed while this process alone was frozen. If the parent was frozen as well
// there is none.
func nextMessage(wait time.Duration) (message, error) {
	readable := []unix.PollFd{{Fd: 0, Events: unix.POLLIN}}
	n, err := unix.Poll(readable, int((wait+time.Millisecond-1)/time.Millisecond))
	if n == 0 || errors.Is(err, unix.EINTR) {
		return message{}, nil
	}
	var buffer [messageSize]byte
	if n, err := unix.Read(0, buffer[:]); err != nil || n != messageSize {
		return message{}, io.EOF
	}
	return decodeMessage(buffer[:]), nil
}

func (w *guardian) kill() {
	if !w.armed() {
		return
	}
	for range killTries {
		if err := unix.Kill(-int(w.group), unix.SIGKILL); errors.Is(err, unix.ESRCH) {
			return
		}
		time.Sleep(killPause)
	}
}

// closeInherited closes what the parent's own parent left open for the command: a
// reader of such a pipe would wait for the watcher's end as well. Go's own files
// are marked close-on-exec and stay.
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

func watcherAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
