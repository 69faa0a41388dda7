//go:build unix

package term

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// ending are the signals that ask a program to end.
var ending = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}

// passing are the others that are passed on to a command.
var passing = []os.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGCONT, unix.SIGTSTP}

// Ends reports whether sig asks a program to end.
func Ends(sig os.Signal) bool {
	for _, s := range ending {
		if s == sig {
			return true
		}
	}
	return false
}

// NotifyEnding relays the signals that ask a program to end, and SIGUSR1 and
// SIGUSR2, which would end it untidily. A signal that was ignored when this program
// started, as nohup has it, stays ignored.
func NotifyEnding(to chan<- os.Signal) {
	notify(to, ending)
	notify(to, passing[:2])
	// Writing to a closed standard error must not end a program that holds a lock.
	// Caught, unlike ignored, is not inherited by the command.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
}

// NotifyPassing relays all signals that are passed on to a command.
func NotifyPassing(to chan<- os.Signal) {
	notify(to, ending)
	notify(to, passing)
}

func notify(to chan<- os.Signal, signals []os.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(to, sig)
		}
	}
}

// StopSelf stops this process, and asks the rest of its group to stop, as the
// terminal would have done if the group had been in the foreground. It returns
// when somebody continues the process. A SIGTSTP that comes later is relayed again.
func StopSelf(relay chan<- os.Signal) error {
	if !signal.Ignored(unix.SIGTSTP) {
		signal.Ignore(unix.SIGTSTP) // our own part of it comes next
		defer signal.Notify(relay, unix.SIGTSTP)
	}
	if err := unix.Kill(0, unix.SIGTSTP); err != nil {
		return err
	}
	return unix.Kill(unix.Getpid(), unix.SIGSTOP)
}

// ignoredAtStart are the numbers of the signals that were ignored when this program started,
// with commas between them.
func ignoredAtStart() string { return "" }
