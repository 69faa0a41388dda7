//go:build unix

package term

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// The first arguments by which this program knows that it is the second half of a
// start. They are no commands of anybody else.
const (
	childArgument   = "__child"
	watcherArgument = "__watch"
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
		return becomeCommand(args[2:]), true
	case watcherArgument:
		return watch(), true
	default:
		return 0, false
	}
}

// A Command is what a child is to become.
type Command struct {
	Path string   // of the file to execute, as [exec.LookPath] found it
	Args []string // with the name of the program first
	Env  []string // all of it
}

// A Child is a process that leads a process group of its own. It inherits the
// standard files and everything else that this program was started with.
type Child struct {
	pid    int
	goOn   *os.File
	reaped *unix.WaitStatus // set once it must not be waited for again
}

// StartChild forks a process that waits for [Child.Go] in its own group. It ends by
// itself when this program does.
func StartChild(c Command) (*Child, error) {
	waits, goOn, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the command: %w", err)
	}
	defer waits.Close()
	// The descriptor keeps its number, above the standard files: those that the
	// user's shell opened for the command keep theirs as well.
	fd := waits.Fd()
	if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
		goOn.Close()
		return nil, fmt.Errorf("start the command: %w", err)
	}
	args := append([]string{"lockstep", childArgument, strconv.Itoa(int(fd)), c.Path}, c.Args...)
	pid, err := syscall.ForkExec(self(), args, &syscall.ProcAttr{
		Env:   c.Env,
		Files: []uintptr{0, 1, 2},
		Sys:   childAttributes(),
	})
	if err != nil {
		goOn.Close()
		return nil, fmt.Errorf("start the command: %w", err)
	}
	return &Child{pid: pid, goOn: goOn}, nil
}

// Go lets the child become its command.
func (c *Child) Go() error {
	defer c.goOn.Close()
	if _, err := c.goOn.Write([]byte{'\n'}); err != nil {
		return fmt.Errorf("start the command: %w", err)
	}
	return nil
}

// Group is the process group that the child leads.
func (c *Child) Group() Group { return Group(c.pid) }

// becomeCommand waits for a line and executes its arguments: the number of the
// descriptor to wait on, a path, and the command's own arguments.
func becomeCommand(args []string) int {
	if len(args) < 3 {
		return codeCannotExecute
	}
	fd, err := strconv.Atoi(args[0])
	if err != nil {
		return codeCannotExecute
	}
	parent := unix.Getppid()
	var line [1]byte
	n, err := unix.Read(fd, line[:])
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(fd, line[:])
	}
	if n != 1 { // who started us is gone
		return codeCannotExecute
	}
	unix.CloseOnExec(fd)
	// Of a process with threads it is the calling one that goes on after exec, and what
	// the parent had set for the first thread is lost.
	runtime.LockOSThread()
	if !dieWithParent(parent) {
		return codeCannotExecute
	}
	return execute(args[1], args[2:])
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
func self() string {
	const link = "/proc/self/exe"
	if _, err := os.Stat(link); err == nil {
		return link
	}
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}
