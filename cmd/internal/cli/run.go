package cli

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstep-dev/lockstep"
)

// maxAtLeast bounds --at-least.
const maxAtLeast = 24 * time.Hour

// runFlags are the flags of run.
type runFlags struct {
	claimFlags
	commandFlags
	end     endWithFlag
	atLeast span
}

// A runPlan is what run was asked to do, checked.
type runPlan struct {
	claimPlan
	commandPlan
	atLeast time.Duration // from the start of the command
}

const runLong = `Waits for the lock NAME, runs the command, and gives the lock back when the command
ends. The lock is renewed all the while.

If the lock is lost, everything that descends from the command is stopped before anybody else
can have the lock: while renewal fails it gets TERM --kill-after before the end of the lease
and KILL at the end; when the lock was revoked it gets TERM and then KILL. It is
also killed when this program is killed or frozen. On Linux no process group and no
session of its own is a way out; elsewhere only the command's process group is stopped. Processes that the
command leaves behind keep running after it ended by itself, without the lock; --wait-all waits for them.

The command finds LOCKSTEP_LOCK, LOCKSTEP_TOKEN and LOCKSTEP_SESSION in its environment.
Write the token with whatever you write, and let the place where you write it refuse older
ones. Others see host, pid, --purpose and the words of the command in "lockstep show".

Signals are passed on to the command. A second INT to this program ends it with TERM, and KILL
after --kill-after; ctrl-C at a terminal is the command's alone, so use kill. Before the lock is granted INT, TERM, HUP and QUIT end the waiting. While
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
  lockstep run -n -E 0 --at-least 30 cron/cleanup -- ./cleanup   # hosts whose clocks differ
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
	f.commandFlags.register(flags)
	f.end.register(flags)
	flags.Var(&f.atLeast, "at-least", "keep the lock for this long from the start of the command, also when it ends earlier: for jobs that hosts start at the same time by clocks that differ")
}

// plan checks the values of the flags and what they mean together.
func (f *runFlags) plan(a *App, cmd *cobra.Command, args []string) (plan runPlan, err error) {
	if plan.claimPlan, err = f.claimFlags.plan(a, "run", args[0], nil); err != nil {
		return runPlan{}, err
	}
	if plan.endWith, err = f.end.plan(a.Parent); err != nil {
		return runPlan{}, err
	}
	if plan.commandPlan, err = f.commandFlags.plan(cmd, args[1:], f.ttl.d); err != nil {
		return runPlan{}, err
	}
	if f.atLeast.d > maxAtLeast {
		return runPlan{}, usageError("--at-least: %v: must be at most %v", f.atLeast.d, maxAtLeast)
	}
	plan.atLeast = f.atLeast.d
	plan.options = f.options(describe(f.labels(), plan.command[1:]))
	return plan, nil
}
