//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// A Process is a descendant of a command.
type Process struct {
	PID    int
	Name   string // of its program, at most 15 bytes; empty if unknown
	group  int
	zombie bool
}

// String returns the process id and the name.
func (p Process) String() string {
	if p.Name == "" {
		return fmt.Sprint(p.PID)
	}
	return fmt.Sprintf("%d (%q)", p.PID, p.Name)
}

// errNoTree means that this system does not list descendants.
var errNoTree = errors.New("this system does not list the descendants of a process (on Linux: is /proc mounted?)")

// living returns the processes that are not zombies. In a zombie, the first thread has ended, but
// others may still be running, so this is only for people to read.
func living(all []Process) []Process {
	var alive []Process
	for _, p := range all {
		if !p.zombie {
			alive = append(alive, p)
		}
	}
	return alive
}

// maxNamed bounds the number of processes in a message.
const maxNamed = 5

// Name describes processes for people: "3 processes: 17 ("sh"), ...".
func Name(all []Process) string {
	if len(all) == 0 {
		return "an invisible process"
	}
	var words []string
	for i, p := range all {
		if i == maxNamed {
			words = append(words, "...")
			break
		}
		words = append(words, p.String())
	}
	if len(all) == 1 {
		return "process " + words[0]
	}
	return fmt.Sprintf("%d processes: %s", len(all), strings.Join(words, ", "))
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
func kill(g Group, list func() ([]Process, error)) error {
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

// A Group is a process group. The zero value is none.
type Group int

func (g Group) known() bool { return g > 1 }

// Signal sends sig to every process of the group. It is not an error if the group is gone.
func (g Group) Signal(sig unix.Signal) error {
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
func (g Group) Exists() bool { return !errors.Is(unix.Kill(-int(g), 0), unix.ESRCH) }
