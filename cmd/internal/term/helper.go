//go:build unix

package term

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// The first arguments by which this program knows that it is another part of a
// start. They are no commands of anybody else.
const (
	childArgument   = "__child"
	watcherArgument = "__watch"
)

// The names under which the helpers are seen. They are not that of the program, as a signal to all that
// bear it (pkill -f lockstep) should leave the watcher to do its work.
const (
	childName   = "command-to-be"
	watcherName = "lock-watcher"
)

// The codes by which shells tell that a command could not be executed.
const (
	codeCannotExecute = 126
	codeNotFound      = 127
)

// Hidden does the work of a waiting child or of a watcher if that is what args,
// with the program's name first, ask for, and returns its exit code. Main
// functions call it before anything else.
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

// showAs makes a name the one that ps, top and pgrep show for this process, at most 15 bytes of it. On Linux that would be "exe",
// as helpers are started by the link /proc/self/exe.
func showAs(name string) { os.WriteFile("/proc/self/comm", []byte(name), 0) }

// childFiles are the descriptors of a waiting child: where it waits, where it says that it is
// there, and those that become the command's standard files.
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

// parseNumbers reads as many numbers as there are places, and reports whether all were there.
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

// becomeCommand waits for a byte and executes its arguments: the descriptors, the signals that it inherits, a
// path, and the command's own arguments.
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
	if !readByte(f.wait) { // who started us is gone
		return codeCannotExecute
	}
	unix.CloseOnExec(f.wait)
	// Of a process with threads it is the calling one that goes on after exec, and what
	// the parent had set for the first thread is lost.
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

// readByte reports whether a byte came, and not the end.
func readByte(fd int) bool {
	var line [1]byte
	n, err := unix.Read(fd, line[:])
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(fd, line[:])
	}
	return n == 1
}

// execute returns only when the command cannot be executed.
func execute(path string, args []string) int {
	err := unix.Exec(path, args, os.Environ())
	if errors.Is(err, unix.ENOEXEC) { // a script without its first line, as execvp has it
		err = unix.Exec("/bin/sh", append([]string{"sh", path}, args[1:]...), os.Environ())
	}
	fmt.Fprintf(os.Stderr, "lockstep: run: cannot execute %+q: %v\n", path, err)
	if errors.Is(err, unix.ENOENT) {
		return codeNotFound
	}
	return codeCannotExecute
}

// self is the path of this program, also after its file was replaced or removed.
func self() (string, error) {
	const link = "/proc/self/exe"
	if _, err := os.Stat(link); err == nil {
		return link, nil
	}
	if path, err := os.Executable(); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(os.Args[0]) // the first argument is as the user's shell looked for it
	if err != nil {
		return "", fmt.Errorf("cannot find the file of this program, which is started once more as the watcher: mount /proc, or start it by its whole path: %w", err)
	}
	return path, nil
}
