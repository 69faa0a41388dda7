//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// The first argument that makes this program act as one of the helpers. No command has these names.
const (
	childArgument   = "__child"
	watcherArgument = "__watch"
)

// The process names of the helpers. They differ from the name of the program, so that a signal to
// every process of that name (pkill -f lockstep) does not reach the watcher.
const (
	childName   = "command-to-be"
	watcherName = "lock-watcher"
)

// The exit codes with which shells report that a command could not be executed.
const (
	codeCannotExecute = 126
	codeNotFound      = 127
)

// Hidden acts as the waiting child or the watcher if args ask for that, and returns the exit code.
// The first element of args is the program's name. Main functions call Hidden before anything else.
func Hidden(args []string) (code int, mine bool) {
	if len(args) < 2 {
		return 0, false
	}
	switch args[1] {
	case childArgument:
		showAs(childName)
		return becomeCommand(args[2:]), true
	case watcherArgument:
		showAs(watcherName)
		return watch(args[2:]), true
	default:
		return 0, false
	}
}

// showAs sets the name that ps, top and pgrep show for this process, at most 15 bytes of it.
// Otherwise Linux would show "exe", since the helpers are started through the link /proc/self/exe.
func showAs(name string) { os.WriteFile("/proc/self/comm", []byte(name), 0) }

// childFiles are the descriptors of a waiting child: where it waits, where it reports that it has
// started, and those that become the command's standard files.
type childFiles struct {
	wait, here    int
	in, out, errs int
}

func (f childFiles) words() []string { return numbers(f.wait, f.here, f.in, f.out, f.errs) }

func numbers(all ...int) []string {
	var words []string
	for _, n := range all {
		words = append(words, strconv.Itoa(n))
	}
	return words
}

// parseNumbers parses one number for each place, and reports whether all were there.
func parseNumbers(words []string, places ...*int) bool {
	if len(words) < len(places) {
		return false
	}
	for i, place := range places {
		n, err := strconv.Atoi(words[i])
		if err != nil {
			return false
		}
		*place = n
	}
	return true
}

// becomeCommand waits for a byte and executes its arguments: the descriptors, the signals to
// inherit, a path, and the command's own arguments.
func becomeCommand(args []string) int {
	var f childFiles
	if !parseNumbers(args, &f.wait, &f.here, &f.in, &f.out, &f.errs) || len(args) < 8 {
		return codeCannotExecute
	}
	signals, err := parseSignals(args[5])
	if err != nil {
		return codeCannotExecute
	}
	path, args := args[6], args[7:]
	parent := unix.Getppid()
	unix.Write(f.here, []byte{'\n'})
	unix.Close(f.here)
	if !readByte(f.wait) { // the process that started us is gone
		return codeCannotExecute
	}
	unix.CloseOnExec(f.wait)
	// In a multithreaded process, the calling thread is the one that survives exec, and what the
	// parent set for the first thread is lost.
	runtime.LockOSThread()
	if !dieWithParent(parent) {
		return codeCannotExecute
	}
	for to, from := range []int{f.in, f.out, f.errs} {
		if err := unix.Dup2(from, to); err != nil {
			return codeCannotExecute
		}
		unix.Close(from)
	}
	signals.take()
	return execute(path, args)
}

// readByte reports whether it read a byte, rather than the end of file.
func readByte(fd int) bool {
	var line [1]byte
	n, err := unix.Read(fd, line[:])
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(fd, line[:])
	}
	return n == 1
}

// execute returns only if the command cannot be executed.
func execute(path string, args []string) int {
	err := unix.Exec(path, args, os.Environ())
	if errors.Is(err, unix.ENOEXEC) { // a script without a #! line: run it in a shell, as execvp does
		err = unix.Exec("/bin/sh", append([]string{"sh", path}, args[1:]...), os.Environ())
	}
	fmt.Fprintf(os.Stderr, "lockstep: run: cannot execute %+q: %v\n", path, err)
	if errors.Is(err, unix.ENOENT) {
		return codeNotFound
	}
	return codeCannotExecute
}

// self returns a path to this program that works even after its file was replaced or removed.
func self() (string, error) {
	const link = "/proc/self/exe"
	if _, err := os.Stat(link); err == nil {
		return link, nil
	}
	if path, err := os.Executable(); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(os.Args[0]) // as the user's shell found it
	if err != nil {
		return "", fmt.Errorf("cannot find the executable of this program, which is also started as the watcher: mount /proc, or start it with its full path: %w", err)
	}
	return path, nil
}
