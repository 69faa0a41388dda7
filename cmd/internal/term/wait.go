//go:build unix

package term

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// A Change is news of a child: it has stopped, or it has ended.
type Change struct {
	Stopped unix.Signal // the signal that stopped it; zero when it has ended
}

// Ended reports whether the child is over.
func (c Change) Ended() bool { return c.Stopped == 0 }

// Wait blocks until the child has ended or stopped. On Linux a child that ended is
// not reaped: until [Child.Reap] no other process or group can get its number, so
// that whoever still kills the group hits no stranger.
func (c *Child) Wait() (Change, error) {
	for {
		err := awaitChange(c.pid)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return Change{}, fmt.Errorf("wait for the command: %w", err)
		}
		over, err := ended(c.pid)
		if err == nil && over {
			return Change{}, nil
		}
		if status, err := c.wait4(unix.WUNTRACED); err != nil {
			return Change{}, err
		} else if status.Stopped() {
			return Change{Stopped: status.StopSignal()}, nil
		} else if status.Exited() || status.Signaled() { // it ended since we looked
			c.reaped = &status
			return Change{}, nil
		}
	}
}

// Reap takes the end of a child that [Child.Wait] reported. The child's number may
// belong to somebody else from then on.
func (c *Child) Reap() (Status, error) {
	if c.reaped == nil {
		status, err := c.wait4(0)
		if err != nil {
			return Status{}, err
		}
		c.reaped = &status
	}
	return Status{*c.reaped}, nil
}

func (c *Child) wait4(options int) (unix.WaitStatus, error) {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(c.pid, &status, options, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for the command: %w", err)
		default:
			return status, nil
		}
	}
}

// A Status is how a child ended.
type Status struct{ status unix.WaitStatus }

// Code is the exit code, or 128 + n for a child that signal n ended.
func (s Status) Code() int {
	if s.status.Signaled() {
		return 128 + int(s.status.Signal())
	}
	return s.status.ExitStatus()
}

// Signaled reports whether a signal ended the child.
func (s Status) Signaled() bool { return s.status.Signaled() }

// A Group is a process group. The zero value is none.
type Group int

// Signal sends sig to every process of the group. A group that is gone is no
// error.
func (g Group) Signal(sig unix.Signal) error {
	if g <= 1 { // kill(2) takes -0 for our own group and -1 for everybody
		panic(fmt.Sprintf("term: signal %v to group %d", sig, g))
	}
	err := unix.Kill(-int(g), sig)
	if err == nil || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return fmt.Errorf("signal %v to process group %d: %w", sig, g, err)
}

// Exists reports whether the group has a process, a zombie included.
func (g Group) Exists() bool { return !errors.Is(unix.Kill(-int(g), 0), unix.ESRCH) }
