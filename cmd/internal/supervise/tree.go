//go:build unix

package supervise

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errNoTree means that this system does not list descendants.
var errNoTree = errors.New("this system does not list the descendants of a process (on Linux: is /proc mounted?)")

// living returns the processes that are not zombies. In a zombie, the first thread has ended, but
// others may still be running, so use this only for display.
func living(all []Process) []Process {
	var alive []Process
	for _, p := range all {
		if !p.zombie {
			alive = append(alive, p)
		}
	}
	return alive
}

// stopPasses bounds how often a kill looks for new processes before it kills those that it has
// found.
const stopPasses = 8

// kill sends SIGKILL to the listed processes and to the group. It first stops the processes, and
// lists again until there are no new ones: a process that keeps forking could escape otherwise. If
// one is missed, the next call finds it.
//
// A listed process id could have been reused only if all other ids had been handed out since: the
// kernel assigns them in turn.
func kill(g processGroup, list func() ([]Process, error)) error {
	var first error
	note := func(err error) {
		if first == nil && err != nil && !errors.Is(err, unix.ESRCH) {
			first = err
		}
	}
	seen := map[int]bool{}
	for range stopPasses {
		found, err := list()
		note(err)
		fresh := false
		for _, p := range found {
			if !seen[p.PID] {
				fresh, seen[p.PID] = true, true
				unix.Kill(p.PID, unix.SIGSTOP)
			}
		}
		if !fresh {
			break
		}
	}
	for pid := range seen {
		note(signalProcess(pid, unix.SIGKILL))
	}
	if g.known() {
		note(g.Signal(unix.SIGKILL))
	}
	return first
}

func signalProcess(pid int, sig unix.Signal) error {
	if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal %v to process %d: %w", sig, pid, err)
	}
	return nil
}

// A processGroup is the id of a process group. Zero means none.
type processGroup int

func (g processGroup) known() bool { return g > 1 }

// Signal sends sig to every process of the group. It is not an error if the group is gone.
func (g processGroup) Signal(sig unix.Signal) error {
	if !g.known() { // kill(2) takes -0 for our own group and -1 for every process
		panic(fmt.Sprintf("supervise: signal %v to group %d", sig, g))
	}
	err := unix.Kill(-int(g), sig)
	if err == nil || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return fmt.Errorf("signal %v to process group %d: %w", sig, g, err)
}

// Exists reports whether the group has any process, including zombies.
func (g processGroup) Exists() bool { return !errors.Is(unix.Kill(-int(g), 0), unix.ESRCH) }
