package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstep-dev/lockstep"
)

// maxKillAfter is the default of --kill-after for long TTLs.
const maxKillAfter = 2 * time.Second

// commandFlags are the flags of the subcommands that run a command under a lock.
type commandFlags struct {
	command   string
	killAfter span
	waitAll   bool
	show      bool
}

// A commandPlan says which command to run under a lock, after validation.
type commandPlan struct {
	command   []string // path of the executable, then its arguments starting with the name
	killAfter time.Duration
	drain     time.Duration // between TERM and KILL when an operator ends elect; 0: killAfter
	waitAll   bool          // wait for all descendants of the command
}

func (f *commandFlags) register(flags *pflag.FlagSet) {
	flags.StringVarP(&f.command, "command", "c", "", "run this command `line` with $SHELL or /bin/sh")
	flags.Var(&f.killAfter, "kill-after", "time between TERM and KILL, at most a third of --ttl (default: 2 or a fifth of --ttl, whichever is less)")
	flags.BoolVar(&f.show, "show-command", false, "show the whole command line to others, not just the name of the command; do not use it with a password on the command line")
	flags.BoolVar(&f.waitAll, "wait-all", false, "keep the lock until everything that the command left running has ended")
}

// plan finds the command in the words after NAME.
func (f *commandFlags) plan(cmd *cobra.Command, words []string, ttl time.Duration) (plan commandPlan, err error) {
	plan.waitAll = f.waitAll
	if plan.killAfter, err = f.killTime(ttl); err != nil {
		return commandPlan{}, err
	}
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if plan.command, err = f.resolve(cmd, words); err != nil {
		return commandPlan{}, err
	}
	return plan, nil
}

// checkArgs requires NAME, then a command after "--" or with -c.
func (f *commandFlags) checkArgs(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	switch {
	case len(args) == 0:
		return missing(cmd, "NAME")
	case f.command != "" && dash >= 0 && len(args) > 1:
		return usageError("give the command after -- or with -c, not both")
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

func (f *commandFlags) killTime(ttl time.Duration) (time.Duration, error) {
	if !f.killAfter.set {
		return min(maxKillAfter, ttl/5), nil
	}
	if most := ttl / 3; f.killAfter.d > most {
		return 0, usageError("--kill-after: %v: must be at most a third of --ttl, here %v", f.killAfter.d, most)
	}
	return f.killAfter.d, nil
}

// resolve finds the executable before anything is sent to the service: there is no point in taking
// a lock for a command that does not exist.
func (f *commandFlags) resolve(cmd *cobra.Command, words []string) ([]string, error) {
	if len(words) == 0 && cmd.Flags().Changed("command") {
		shell := os.Getenv("SHELL")
		if shell == "" {
			shell = "/bin/sh"
		}
		if name := filepath.Base(shell); name == "nologin" || name == "false" {
			return nil, exitError{CodeNotRunnable, fmt.Errorf("-c: the shell of this user, SHELL=%s, cannot run commands: set SHELL=/bin/sh, or give the command after --", lockstep.Excerpt(shell))}
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

// shown returns the words of the command that others see. They are visible to anyone who can look
// at locks, in the history and in the audit logs, and often contain a password.
func (f *commandFlags) shown(plan commandPlan) []string {
	if f.show {
		return plan.command[1:]
	}
	return plan.command[1:2]
}

// cause returns the reason from an error of LookPath, without the name.
func cause(err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// describe adds to labels what others see about every holder. The words of the command are cut to
// the space that the other labels leave.
func describe(labels map[string]string, command []string) map[string]string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	labels["host"], labels["pid"] = oneLine(host), fmt.Sprint(os.Getpid())
	left := lockstep.MaxMetadataBytes - len("command")
	for key, value := range labels {
		left -= len(key) + len(value)
	}
	if line := cut(oneLine(strings.Join(command, " ")), left); line != "" {
		labels["command"] = line
	}
	return labels
}

// cut shortens s to at most n bytes without splitting a character, ending in "..." if anything was
// cut.
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
