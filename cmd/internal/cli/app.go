package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/cmd/internal/supervise"
	"github.com/lockstep-dev/lockstep/fence"
)

// The exit codes. The exit code of a command under "run" is passed through, or 128 + n if signal n
// ended it.
const (
	CodeOK          = 0
	CodeBusy        = 1   // the lock is held by others; "run -E" sets another code
	CodeUsage       = 64  // the command line or the configuration is wrong
	CodeUnavailable = 69  // the service cannot be reached, or refuses for now
	CodeInternal    = 70  // anything else
	CodeLost        = 121 // the lock was lost while the command was running
	CodeNotRunnable = 126 // the command cannot be executed
	CodeNotFound    = 127 // command not found
)

// Set by the linker in release builds.
var (
	version   = ""
	builtUnix = "" // seconds
)

// An App holds what the commands share: where they write, and how they reach a lock service. Tests
// replace its parts.
type App struct {
	Out, Err io.Writer
	// Parent is the parent process at startup. It is read first, since the parent may exit at any
	// time.
	Parent int
	// Getenv reads the environment for the flags.
	Getenv func(string) string
	// Environ lists the whole environment, to warn about variables that have no effect.
	Environ func() []string
	// OpenLocker connects to a backend.
	OpenLocker func(Target) (lockstep.Locker, error)
	// Adopt makes the process the parent of orphans and reaps every child that exits. If nil,
	// nothing is adopted: other parts of the program wait for their own children.
	Adopt func() error
}

// NewApp returns the App of a real process.
func NewApp() *App {
	return &App{Parent: os.Getppid(), Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Environ: os.Environ, OpenLocker: openLocker}
}

// Main runs the program with args, where args[0] is its own name, and returns the exit code.
func Main(args []string) int {
	if code, mine := supervise.Hidden(args); mine {
		return code
	}
	app := NewApp()
	app.Adopt = supervise.Adopt
	return app.Main(context.Background(), args[1:])
}

// Main runs one command line, without the program's name, and returns the exit code.
func (a *App) Main(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return CodeOK
	}
	var exit exitError
	if !errors.As(err, &exit) {
		exit = classify(err)
	}
	if exit.err != nil {
		exit.err = advise(command, exit.err)
		a.complain(strings.TrimPrefix(command.CommandPath(), "lockstep "), exit.err)
	}
	return exit.code
}

// advise adds what to do when nothing serves at the default endpoint and no other was given.
func advise(command *cobra.Command, err error) error {
	flags := command.Flags()
	if !errors.Is(err, lockstep.ErrUnavailable) || flags.Lookup("endpoints") == nil || flags.Changed("endpoints") || flags.Changed("backend") {
		return err
	}
	return fmt.Errorf(`%w: give the nodes of the service with --endpoints or LOCKSTEP_ENDPOINTS, or start one with "lockstep dev"`, err)
}

// joined puts the lines of joined errors on one line.
var joined = strings.NewReplacer("\n\t", " ", "\n", "; ")

// complain prints an error on one line.
func (a *App) complain(command string, err error) {
	text := joined.Replace(strings.ReplaceAll(err.Error(), "lockstep: ", ""))
	if command != "lockstep" {
		text = command + ": " + text
	}
	fmt.Fprintf(a.Err, "lockstep: %s\n", oneLine(text))
}

// An exitError ends the program with an exit code. If err is nil, nothing is printed.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns the cause.
func (e exitError) Unwrap() error { return e.err }

func usageError(format string, args ...any) error {
	return exitError{CodeUsage, fmt.Errorf(format, args...)}
}

// codeOf maps backend errors to exit codes.
var codeOf = []struct {
	err  error
	code int
}{
	{lockstep.ErrInvalid, CodeUsage},
	{lockstep.ErrUnsupported, CodeUsage},
	{lockstep.ErrMode, CodeUsage},
	{lockstep.ErrBusy, CodeBusy},
	{fence.ErrBusy, CodeBusy},
	{fence.ErrMoved, CodeBusy},
	{lockstep.ErrUnavailable, CodeUnavailable},
	{lockstep.ErrQuota, CodeUnavailable},
	{lockstep.ErrUncertain, CodeUnavailable},
	{context.DeadlineExceeded, CodeUnavailable},
	{lockstep.ErrLost, CodeLost},
}

func classify(err error) exitError {
	for _, c := range codeOf {
		if errors.Is(err, c.err) {
			return exitError{c.code, err}
		}
	}
	return exitError{CodeInternal, err}
}

// Version returns the version of this build.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
