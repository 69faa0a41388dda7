package cli

import (
	"context"
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

const runLong = `Waits for the lock NAME, runs the command, and releases the lock when the command ends. The
lock is renewed all the while.

If the lock is lost, the command and all its descendants are stopped before anyone else can have
the lock. If renewal fails, they get TERM --kill-after before the end of the lease and KILL at its
end; if the lock is revoked, they get TERM and then KILL. They are also killed if this program is
killed or frozen. On Linux a process cannot escape by starting its own process group or session;
on other systems only the command's process group is stopped. Processes that the command leaves
running when it ends by itself continue without the lock; --wait-all waits for them.

The command finds LOCKSTEP_LOCK, LOCKSTEP_TOKEN and LOCKSTEP_SESSION in its environment. Send the
token with every write, and let the storage refuse older tokens. Others see host, pid, --purpose and
the name of the command in "lockstep show", or the whole command line with --show-command.

Signals are passed on to the command. A second INT to this program sends TERM to the command and
all its descendants, and KILL after --kill-after. Send it with kill: ctrl-C at a terminal only reaches
the command. While waiting for the lock, INT, TERM, HUP and QUIT end the wait. While ctrl-Z stops the
command, the lock is not renewed: continue it before the lease ends.

Exit codes: the exit code of the command, 128 + n if signal n ended it or the wait, 143 if --end-with
ended the wait, 1 (or -E) if the lock is busy, 64 for an invalid command line, 69 if the service
cannot be reached, 121 if the lock was lost, 126 or 127 if the command cannot be executed.`

func (a *App) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:     "run NAME [flags] -- COMMAND [ARGUMENT...]",
		Aliases: []string{"lock"},
		Short:   "Run a command while holding a lock",
		Long:    runLong,
		Example: `  lockstep run billing/nightly -- ./job --all
  lockstep run -w 2.5 billing/nightly -c 'make report > out'
  lockstep run -n -E 0 cron/cleanup -- ./cleanup      # skip if another one is running
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
	flags.Var(&f.maxHold, "max-hold", "stop a command that runs longer than this with TERM, and KILL after --kill-after (default: no limit)")
	flags.Var(&f.atLeast, "at-least", "keep the lock at least this long after the start of the command, even if it ends earlier: for jobs that several hosts start at the same time, with clocks that differ")
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

// run waits for the lock, runs the command, and releases the lock. The error carries the exit code;
// nil means code 0.
func (a *App) run(ctx context.Context, plan runPlan) error {
	if err := a.adopt(); err != nil {
		return err
	}
	h, err := a.begin(ctx, plan.claimPlan)
	if h == nil {
		return err
	}
	command := plan.supervised(plan.claimPlan)
	command.AtLeast, command.MaxHold = plan.atLeast, plan.maxHold
	code, err := h.Run(command)
	return ended(plan.claimPlan, code, err)
}
