package supervise

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// An Event is something that a user should know about. It is one of the types below.
type Event interface{ isEvent() }

type (
	// Failed means that an operation on the command or the terminal failed.
	Failed struct{ Err error }

	// WatcherKilled means that the watcher was killed, and so was the command.
	WatcherKilled struct{}

	// Interrupted means that a second interrupt stops the command.
	Interrupted struct{}

	// Due means that something that [Claim.EndWith] names has ended, which stops the command.
	Due struct{ Reason Reason }

	// HeldTooLong means that the command has run for [Command.MaxHold] and is being stopped.
	HeldTooLong struct{ Limit time.Duration }

	// CommandStopped means that a signal stopped the command. Its lock is still renewed.
	CommandStopped struct {
		Signal string // its name, such as SIGTSTP
		Group  int    // the process group of the command
	}

	// Suspending means that this process stops together with its command, as the terminal asked.
	// From here on the lock is not renewed.
	Suspending struct{ Remaining time.Duration } // of the lease

	// LeftRunning means that the command has ended, and its descendants continue without the lock.
	LeftRunning struct{ Left []Process }

	// Unkillable means that part of the command is alive long after the kill. The lock is renewed
	// until that part ends, or until an interrupt.
	Unkillable struct {
		After time.Duration
		Left  []Process
	}

	// ReleaseUnconfirmed means that the lock may stay held until its lease ends.
	ReleaseUnconfirmed struct{ Err error }

	// CampaignFailed means that a candidate tries again after an error.
	CampaignFailed struct{ Err error }

	// TermLost means that a candidate has lost its leadership, and campaigns again.
	TermLost struct{ Err error }
)

func (Failed) isEvent()             {}
func (WatcherKilled) isEvent()      {}
func (Interrupted) isEvent()        {}
func (Due) isEvent()                {}
func (HeldTooLong) isEvent()        {}
func (CommandStopped) isEvent()     {}
func (Suspending) isEvent()         {}
func (LeftRunning) isEvent()        {}
func (Unkillable) isEvent()         {}
func (ReleaseUnconfirmed) isEvent() {}
func (CampaignFailed) isEvent()     {}
func (TermLost) isEvent()           {}

// ErrSystem means that this system has no process groups, so that no command can be supervised.
var ErrSystem = errors.New("no process groups on this system")

// ErrNotRenewed is the loss of a lock whose lease is about to end.
var ErrNotRenewed = errors.New("its lease could not be renewed in time")

// A LostError means that the lock was lost. No process of the command is left.
type LostError struct {
	Token   lockstep.Token
	Started bool // the command was started
	Err     error
}

func (e *LostError) Error() string { return fmt.Sprintf("lock lost: %v", e.Err) }

// Unwrap returns why the lock was lost.
func (e *LostError) Unwrap() error { return e.Err }

// A StuckError means that part of the command is alive long after the kill. The lock was not
// released: it stays held until its lease ends, as late as possible.
type StuckError struct {
	After time.Duration
	Left  []Process
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("%v after the kill, %s is still alive", e.After, Name(e.Left))
}

// A StartError means that the command could not be started.
type StartError struct{ Err error }

func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// A SignalError means that a signal ended the wait.
type SignalError struct{ Signal syscall.Signal }

func (e *SignalError) Error() string { return fmt.Sprintf("ended by signal %d", int(e.Signal)) }

// A DueError means that something that [Claim.EndWith] names has ended, which ended the wait.
type DueError struct{ Reason Reason }

func (e *DueError) Error() string { return string(e.Reason) }

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
