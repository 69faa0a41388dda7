//go:build unix

package term

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A Terminal is the controlling terminal of this process, whatever the standard files are.
type Terminal struct {
	file  *os.File
	fd    int
	own   int         // our process group
	modes *term.State // as they were at the start
	given bool        // the foreground is a child's, by our doing
	whole bool        // the standard output is a terminal as well
}

// OpenTerminal returns the controlling terminal, if there is one. The command may ask there (as sudo, ssh, gpg and git do) although
// its standard input is something else.
func OpenTerminal() (*Terminal, bool) {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, false
	}
	fd := int(file.Fd())
	modes, err := term.GetState(fd)
	if err != nil {
		file.Close()
		return nil, false
	}
	return &Terminal{file: file, fd: fd, own: unix.Getpgrp(), modes: modes, whole: term.IsTerminal(int(os.Stdout.Fd()))}, true
}

// Close ends the use of the terminal.
func (t *Terminal) Close() { t.file.Close() }

// IgnoreStops lets this process write to the terminal and hand out its foreground
// while it is in the background itself. Ignored signals are inherited: call it after the last
// start of a command, and before Give.
func IgnoreStops() { signal.Ignore(unix.SIGTTOU) }

// HeedStops undoes IgnoreStops, for the start of another command, which is not to inherit it: a signal
// that is caught is not inherited, and one that was ignored cannot be reset.
func HeedStops() { signal.Notify(make(chan os.Signal, 1), unix.SIGTTOU) }

// Foreground reports whether our own group is the foreground one.
func (t *Terminal) Foreground() bool {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == t.own
}

// Whole reports whether the standard output is the terminal too. Otherwise we may
// be part of a pipeline, whose other end needs the keyboard more than the
// command does.
func (t *Terminal) Whole() bool { return t.whole }

// JobControl reports whether somebody could continue us after a stop. In the group of
// the session's leader nobody could, so the kernel discards a stop from the
// keyboard there.
func (t *Terminal) JobControl() bool {
	session, err := unix.Getsid(0)
	return err == nil && session != t.own
}

// Give makes g the foreground group if ours is, so that its processes may read and
// get what the keyboard sends.
func (t *Terminal) Give(g Group) error {
	if !t.Foreground() {
		return nil
	}
	if err := t.set(int(g)); err != nil {
		return err
	}
	t.given = true
	return nil
}

// TakeBack makes our own group the foreground one again if Give had given it away.
func (t *Terminal) TakeBack() error {
	if !t.given {
		return nil
	}
	t.given = false
	return t.set(t.own)
}

// Restore sets the modes of the terminal to what they were at the start: a command that
// was killed may have left it raw.
func (t *Terminal) Restore() error { return term.Restore(t.fd, t.modes) }

func (t *Terminal) set(group int) error {
	if err := unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group); err != nil {
		return fmt.Errorf("set the terminal's foreground group: %w", err)
	}
	return nil
}
