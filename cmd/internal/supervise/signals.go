//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// endSignals are the signals that ask a program to end.
var endSignals = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}

// stopSignals are the signals of a terminal's job control, except TTOU; see ignoreStops.
var stopSignals = []os.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGCONT}

// asksToEnd reports whether sig asks a program to end.
func asksToEnd(sig os.Signal) bool {
	for _, s := range endSignals {
		if s == sig {
			return true
		}
	}
	return false
}

// notifyEnding relays the signals that ask a program to end, and all others that would end it
// without cleanup, except those of job control. A signal that was ignored when this program
// started, as under nohup, stays ignored.
func notifyEnding(to chan<- os.Signal) {
	notify(to, endSignals)
	notify(to, others())
	// A write to a closed standard error must not end a program that holds a lock. The command does
	// not inherit a caught signal, but would inherit an ignored one.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
}

// notifyPassing relays all signals that are passed on to a command: all that can be caught, except
// those that a program causes itself (faults, PIPE, CHLD) and those that the Go runtime uses (URG,
// PROF).
func notifyPassing(to chan<- os.Signal) {
	notify(to, endSignals)
	notify(to, others())
	notify(to, stopSignals)
}

// maxSignal is above all signals. Numbers that a system does not have are never sent.
const maxSignal = 65

// others returns the signals that neither ask for an end nor belong to job control.
func others() (all []os.Signal) {
	no := map[os.Signal]bool{unix.SIGKILL: true, unix.SIGSTOP: true, unix.SIGTTOU: true, unix.SIGPIPE: true, unix.SIGCHLD: true, unix.SIGURG: true,
		unix.SIGPROF: true, unix.SIGILL: true, unix.SIGTRAP: true, unix.SIGBUS: true, unix.SIGFPE: true, unix.SIGSEGV: true, unix.SIGSYS: true}
	for _, group := range [][]os.Signal{endSignals, stopSignals} {
		for _, sig := range group {
			no[sig] = true
		}
	}
	for sig := syscall.Signal(1); sig < maxSignal; sig++ {
		if !no[sig] {
			all = append(all, sig)
		}
	}
	return all
}

func notify(to chan<- os.Signal, signals []os.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(to, sig)
		}
	}
}

// stopSelf stops this process, and asks the rest of its group to stop, as the terminal would have
// done if the group had been in the foreground. It returns when the process is continued. A later
// SIGTSTP is relayed again.
func stopSelf(relay chan<- os.Signal) error {
	if !signal.Ignored(unix.SIGTSTP) {
		signal.Ignore(unix.SIGTSTP) // we stop ourselves next
		defer signal.Notify(relay, unix.SIGTSTP)
	}
	if err := unix.Kill(0, unix.SIGTSTP); err != nil {
		return err
	}
	return unix.Kill(unix.Getpid(), unix.SIGSTOP)
}
