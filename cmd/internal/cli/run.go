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
	maxHold span
}

// A runPlan is what run was asked to do, after validation.
type runPlan struct {
	claimPlan
	commandPlan
	atLeast time.Duration // from the start of the command
	maxHold time.Duration // from the start of the command to its TERM; 0: no limit
}

const runLong = `Waits for the lock NAME, runs the command, and gives the lock back when the command
ends. The lock is renewed all the while.

If the lock is lost, everything that descends from the command is stopped before anybody else
can have the lock: while renewal fails it gets TERM --kill-after before the end of the lease
and KILL at the end; when the lock was revoked it gets TERM and then KILL. It is
also killed when this program is killed or frozen. On Linux a process cannot escape by starting a process group or
session of its own; elsewhere only the command's process group is stopped. Processes that the command leaves
running when it ends by itself keep running without the lock; --wait-all waits for them.

The command finds LOCKSTEP_LOCK, LOCKSTEP_TOKEN and LOCKSTEP_SESSION in its environment.
Write the token with whatever you write, and let the place where you write it refuse older
ones. Others see host, pid, --purpose and the name of the command in "lockstep show", and with --show-command all its words.

Signals are passed on to the command. A second INT to this program sends TERM to everything that descends from
the command, and KILL after --kill-after. Send it with kill: ctrl-C at a terminal reaches only the command. Before the lock is granted INT,
TERM, HUP and QUIT end the waiting. The lock is not renewed while ctrl-Z stops the command: continue it
before the lease ends.

Exit codes: that of the command, 128 + n if signal n ended it or the waiting, 143 when --end-with
ended the waiting, 1 (or -E) when the lock is busy, 64 for a wrong command line, 69 when the service
cannot be reached, 121 when the lock was lost, 126 or 127 when the command cannot be executed.`

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
	flags.Var(&f.maxHold, "max-hold", "stop a command that runs longer than this: TERM, and KILL after --kill-after (default: no bound)")
	flags.Var(&f.atLeast, "at-least", "keep the lock at least this long after the start of the command, even if the command ends earlier: for a job that several hosts start at the same time by clocks that differ")
}

// checkMaxHold checks --max-hold.
func checkMaxHold(s span) error {
	if s.set && s.d < lockstep.MinMaxHold {
		return usageError("--max-hold: %v: must be at least %v", s.d, lockstep.MinMaxHold)
	}
	return nil
}

// plan validates the flags, on their own and in combination.
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
	if err := checkMaxHold(f.maxHold); err != nil {
		return runPlan{}, err
	}
	plan.atLeast, plan.maxHold = f.atLeast.d, f.maxHold.d
	plan.labels = describe(f.labels(), f.shown(plan.commandPlan))
	plan.options = f.options(plan.labels)
	return plan, nil
}
