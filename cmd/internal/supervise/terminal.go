//go:build unix

package supervise

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A terminal is the controlling terminal of this process, whatever its standard files are.
type terminal struct {
	file  *os.File
	fd    int
	own   int         // our process group
	modes *term.State // the modes at the start
	given bool        // we made a child's group the foreground one
	whole bool        // standard output is a terminal as well
}

// openTerminal returns the controlling terminal, if there is one. The command may prompt there (as
// sudo, ssh, gpg and git do) even if its standard input is something else.
func openTerminal() (*terminal, bool) {
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
	return &terminal{file: file, fd: fd, own: unix.Getpgrp(), modes: modes, whole: term.IsTerminal(int(os.Stdout.Fd()))}, true
}

// Close closes the terminal.
func (t *terminal) Close() { t.file.Close() }

// ignoreStops lets this process write to the terminal and set its foreground group while it is in
// the background. Ignored signals are inherited: call it after the last start of a command and
// before Give.
func ignoreStops() { signal.Ignore(unix.SIGTTOU) }

// heedStops undoes ignoreStops before another command is started, which must not inherit it. It
// catches the signal: a caught signal is not inherited, and an ignored one cannot be reset.
func heedStops() { signal.Notify(make(chan os.Signal, 1), unix.SIGTTOU) }

// Foreground reports whether our own group is the foreground one.
func (t *terminal) Foreground() bool {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == t.own
}

// Whole reports whether standard output is also the terminal. If not, we may be part of a pipeline
// whose other end needs the keyboard more than the command does.
func (t *terminal) Whole() bool { return t.whole }

// JobControl reports whether anything could continue us after a stop. In the group of the session
// leader nothing could, so the kernel discards stops from the keyboard there.
func (t *terminal) JobControl() bool {
	session, err := unix.Getsid(0)
	return err == nil && session != t.own
}

// Give makes g the foreground group if ours is, so that its processes can read the terminal and get
// the signals of the keyboard.
func (t *terminal) Give(g processGroup) error {
	if !t.Foreground() {
		return nil
	}
	if err := t.set(int(g)); err != nil {
		return err
	}
	t.given = true
	return nil
}

// TakeBack makes our group the foreground one again if Give changed that.
func (t *terminal) TakeBack() error {
	if !t.given {
		return nil
	}
	t.given = false
	return t.set(t.own)
}

// Restore resets the modes of the terminal to those at the start: a command that was killed may
// have left it in raw mode.
func (t *terminal) Restore() error { return term.Restore(t.fd, t.modes) }

func (t *terminal) set(group int) error {
	if err := unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group); err != nil {
		return fmt.Errorf("set the terminal's foreground group: %w", err)
	}
	return nil
}
