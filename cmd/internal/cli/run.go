package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstep-dev/lockstep"
)

// maxKillAfter is the default of --kill-after for long TTLs.
const maxKillAfter = 2 * time.Second

// runFlags are the flags of run.
type runFlags struct {
	claimFlags
	command   string
	killAfter span
	endWith   []string
}

// A runPlan is what run was asked to do, checked.
type runPlan struct {
	claimPlan
	command   []string // path of the file, then its arguments with the name first
	killAfter time.Duration
	endWith   endWith
}

// endWith says what besides the lock ends the command.
type endWith struct {
	parent bool // the process that started run is gone
	stdin  bool // the standard input has no writer any more
}

const runLong = `Waits for the lock NAME, runs the command, and gives the lock back when the command
ends. The lock is renewed all the while.

If the lock is lost, the command's whole process group is stopped before anybody else
can have the lock: while renewal fails it gets TERM --kill-after before the end of the lease
and KILL at the end; when the lock was revoked it gets TERM and then KILL. It is
also killed when this program is killed or frozen. Processes that the
command leaves behind in the background keep running after it ended well, without the lock;
those that left its process group are never touched.

The command finds LOCKSTEP_LOCK, LOCKSTEP_TOKEN and LOCKSTEP_SESSION in its environment.
Write the token with whatever you write, and let the place where you write it refuse older
ones. Others see host, pid, --purpose and the words of the command in "lockstep show".

Signals are passed on to the command. A second INT ends it with TERM, and KILL
after --kill-after. Before the lock is granted INT, TERM, HUP and QUIT end the waiting. While
ctrl-Z stops the command the lock is not renewed: continue before the lease ends.

Exit codes: that of the command, 128 + n if signal n ended it, 1 (or -E) when the lock is
busy, 64 for a wrong command line, 69 when the service cannot be reached, 121 when the
lock was lost, 126 or 127 when the command cannot be executed.`

func (a *App) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:     "run NAME [flags] -- COMMAND [ARGUMENT...]",
		Aliases: []string{"lock"},
		Short:   "Run a command while holding a lock",
		Long:    runLong,
		Example: `  lockstep run billing/nightly -- ./job --all
  lockstep run -w 2.5 billing/nightly -c 'make report > out'
  lockstep run -n -E 0 cron/cleanup -- ./cleanup      # skip when another one runs
  lockstep run --permits 1/3 gpu -- ./train           # three at a time
  lockstep run -- --odd-name -- ./job`,
		Args: func(cmd *cobra.Command, args []string) error { return f.checkArgs(cmd, args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			plan, err := f.plan(a, cmd, args)
			if err != nil {
				return err
			}
			return a.run(cmd.Context(), plan)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *runFlags) register(flags *pflag.FlagSet) {
	f.claimFlags.register(flags, lockstep.DefaultTTL)
	flags.StringVarP(&f.command, "command", "c", "", "run this `line` with $SHELL or /bin/sh")
	flags.Var(&f.killAfter, "kill-after", "time between TERM and KILL, up to a third of --ttl (default: 2, or a fifth of --ttl)")
	flags.StringSliceVar(&f.endWith, "end-with", nil, "end the command when `parent` is gone, stdin is closed, or both (parent,stdin)")
}

// checkArgs wants NAME and then a command behind "--", or -c.
func (f *runFlags) checkArgs(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	switch {
	case len(args) == 0:
		return missing(cmd, "NAME")
	case f.command != "" && dash >= 0 && len(args) > 1:
		return usageError("give the command behind -- or with -c, not both")
	case dash == 0 && len(args) > 1 && args[1] == "--": // "-- NAME -- COMMAND", for names that look like flags
		if len(args) == 2 {
			return missing(cmd, "COMMAND")
		}
		return nil
	case dash == 0, dash == 1, len(args) == 1:
		return nil
	default:
		return usageError(`put "--" between the name and the command: %s NAME -- COMMAND`, cmd.CommandPath())
	}
}

// plan checks the values of the flags and what they mean together.
func (f *runFlags) plan(a *App, cmd *cobra.Command, args []string) (plan runPlan, err error) {
	if plan.claimPlan, err = f.claimFlags.plan(a, "run", args[0], nil); err != nil {
		return runPlan{}, err
	}
	if plan.killAfter, err = f.killTime(); err != nil {
		return runPlan{}, err
	}
	if plan.endWith, err = parseEndWith(f.endWith); err != nil {
		return runPlan{}, err
	}
	words := args[1:]
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if plan.command, err = f.resolve(cmd, words); err != nil {
		return runPlan{}, err
	}
	plan.options = f.options(describe(f.purpose, plan.command[1:]))
	return plan, nil
}

func (f *runFlags) killTime() (time.Duration, error) {
	if !f.killAfter.set {
		return min(maxKillAfter, f.ttl.d/5), nil
	}
	if most := f.ttl.d / 3; f.killAfter.d > most {
		return 0, usageError("--kill-after: %v: must be at most a third of --ttl, here %v", f.killAfter.d, most)
	}
	return f.killAfter.d, nil
}

func parseEndWith(words []string) (endWith, error) {
	var e endWith
	for _, w := range words {
		switch w {
		case "parent":
			e.parent = true
		case "stdin":
			e.stdin = true
		default:
			return endWith{}, usageError("--end-with: %q: want parent, stdin or both", w)
		}
	}
	return e, nil
}

// resolve finds the file to execute before anything is asked of the service: a lock
// for a command that does not exist helps nobody.
func (f *runFlags) resolve(cmd *cobra.Command, words []string) ([]string, error) {
	if len(words) == 0 && cmd.Flags().Changed("command") {
		shell := os.Getenv("SHELL")
		if shell == "" {
			shell = "/bin/sh"
		}
		words = []string{shell, "-c", f.command}
	}
	if len(words) == 0 {
		return nil, missing(cmd, "COMMAND")
	}
	path, err := exec.LookPath(words[0])
	if err == nil || errors.Is(err, exec.ErrDot) {
		return append([]string{path}, words...), nil
	}
	code := CodeNotFound
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EISDIR) {
		code = CodeNotRunnable
	}
	return nil, exitError{code, fmt.Errorf("cannot execute %s: %w", lockstep.Excerpt(words[0]), cause(err))}
}

// cause is the reason in an error of LookPath, without the name that stands there.
func cause(err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// describe makes the labels that others see beside the holder. The words of the
// command are cut to what the other labels leave.
func describe(purpose string, command []string) map[string]string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	labels := map[string]string{"host": oneLine(host), "pid": fmt.Sprint(os.Getpid())}
	if purpose != "" {
		labels["purpose"] = purpose
	}
	left := lockstep.MaxMetadataBytes - len("command")
	for key, value := range labels {
		left -= len(key) + len(value)
	}
	if line := cut(oneLine(strings.Join(command, " ")), left); line != "" {
		labels["command"] = line
	}
	return labels
}

// cut shortens s to at most n bytes at the border of a character, with "..." in place
// of the rest.
func cut(s string, n int) string {
	const more = "..."
	if len(s) <= n {
		return s
	}
	if n < len(more) {
		return ""
	}
	end := 0
	for i := range s {
		if i > n-len(more) {
			break
		}
		end = i
	}
	return s[:end] + more
}
