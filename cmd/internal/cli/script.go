package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep"
)

// scriptTTL is the default TTL of "acquire": nothing renews the lease between the commands of a
// script.
const scriptTTL = 60 * time.Second

// An acquirePlan is what acquire was asked to do, after validation.
type acquirePlan struct {
	claimPlan
	file  string // where the handle goes; empty: standard output
	force bool   // replace that file
	out   output
}

const acquireLong = `Waits for the lock NAME and leaves it held when this command ends, for the commands that
follow it in a script. It prints a handle, with which "renew" and "release" find the lock again. The handle is a
secret: anyone who has it can renew and release the lock. They take it from LOCKSTEP_HANDLE, or
from --handle-file, which is made with mode 0600; then only the token is printed. A file that is there is replaced with
--force only: a lock may be held by its handle.

Nothing renews the lock meanwhile. Run "lockstep renew" at least once in half of --ttl, and stop what you do when it fails
with 121: the lock was lost. Where one command does all the work, use "lockstep run": it stops the command
in time when the lock is lost.

Exit codes: 0 when the lock is held, 128 + n if signal n ended the waiting, 1 (or -E) when it is busy, 64, 69.`

func (a *App) acquireCommand() *cobra.Command {
	var f claimFlags
	var plan acquirePlan
	cmd := &cobra.Command{
		Use:   "acquire NAME [flags]",
		Short: "Take a lock and leave it held, for a script",
		Long:  acquireLong,
		Example: `  LOCKSTEP_HANDLE=$(lockstep acquire billing/nightly) || exit; export LOCKSTEP_HANDLE
  ./first-half && lockstep renew && ./second-half
  lockstep release

  token=$(lockstep acquire -w 30 --ttl 5m --handle-file job.handle billing/nightly)
  lockstep acquire billing/nightly -o json | jq -r .token`,
		Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			labels := describe(f.labels(), nil)
			labels["pid"] = strconv.Itoa(os.Getppid()) // this process will have exited
			if plan.claimPlan, err = f.plan(a, "acquire", args[0], labels); err != nil {
				return err
			}
			plan.target.Metadata = labels
			return a.acquire(cmd.Context(), plan)
		},
	}
	f.register(cmd.Flags(), scriptTTL)
	plan.out.register(cmd.Flags())
	cmd.Flags().StringVar(&plan.file, "handle-file", "", "write the handle to this `file` instead of printing it")
	cmd.Flags().BoolVar(&plan.force, "force", false, "replace an existing --handle-file")
	return cmd
}

func (a *App) renewCommand() *cobra.Command {
	var f handleFlags
	cmd := &cobra.Command{
		Use:   "renew [flags]",
		Short: "Renew a lock that acquire left held",
		Long: `Renews the lock whose handle is in LOCKSTEP_HANDLE or --handle-file: its whole TTL is ahead again. The exit
code is 121 when the lock was lost, and 69 when the service cannot be reached; the lock is then held until its
lease ends, and renew can be tried again.`,
		Example: "  lockstep renew\n  lockstep renew --handle-file job.handle || exit\n  lockstep renew -o json | jq .remaining_ms",
		Args:    noHandle,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.withAttached(cmd.Context(), a, func(ctx context.Context, d lockstep.Detacher, lock lockstep.Lock) error {
				report := grantReport{Lock: lock.Name(), Token: uint64(lock.Token()), Session: owner(lock), RemainingMS: lock.Remaining().Milliseconds()}
				if _, err := d.Detach(ctx, lock); err != nil { // the handle stays the same
					return err
				}
				return a.printRenewed(report, f.out)
			})
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (a *App) printRenewed(report grantReport, out output) error {
	if out == jsonOutput {
		return a.writeJSON(report)
	}
	left := time.Duration(report.RemainingMS) * time.Millisecond
	_, err := fmt.Fprintf(a.Out, "%s: renewed, token %d, %v left\n", printable(report.Lock), report.Token, left.Round(100*time.Millisecond))
	return err
}

func (a *App) releaseCommand() *cobra.Command {
	f := handleFlags{advice: "nothing is left to give back: it was released before, or it was lost, and others may have worked under it meanwhile"}
	cmd := &cobra.Command{
		Use:   "release [flags]",
		Short: "Give a lock back that acquire left held",
		Long: `Gives the lock back whose handle is in LOCKSTEP_HANDLE or --handle-file; the file is removed then. The exit code is 121
when the lock was lost before: others may have worked under it meanwhile. The file is removed then too.`,
		Example: "  lockstep release\n  lockstep release --handle-file job.handle",
		Args:    noHandle,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var report releaseReport
			err := f.withAttached(cmd.Context(), a, func(ctx context.Context, _ lockstep.Detacher, lock lockstep.Lock) error {
				report = releaseReport{lock.Name(), uint64(lock.Token())}
				return lock.Release(ctx)
			})
			if _, gone := errors.AsType[goneMeanwhile](err); gone {
				err = nil
			}
			if err == nil {
				err = a.printReleased(report, f.out)
			}
			if f.file != "" && f.file != "-" && (err == nil || errors.Is(err, lockstep.ErrLost)) {
				os.Remove(f.file)
			}
			return err
		},
	}
	f.register(cmd.Flags())
	return cmd
}

// A releaseReport is the output of "release".
type releaseReport struct {
	Lock  string `json:"lock"`
	Token uint64 `json:"token,omitempty"` // the token it was held with
}

func (a *App) printReleased(report releaseReport, out output) error {
	if out == jsonOutput {
		return a.writeJSON(report)
	}
	_, err := fmt.Fprintf(a.Out, "%s: released\n", printable(report.Lock))
	return err
}

// noHandle rejects a handle on the command line, without repeating it.
func noHandle(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError("unexpected argument: a handle is a secret that does not belong on a command line: give it in %s or --handle-file", handleVariable)
	}
	return nil
}

// A holdPlan is what hold was asked to do, after validation.
type holdPlan struct {
	claimPlan
	maxHold time.Duration // 0: no limit
	out     output
}

const holdLong = `Waits for the lock NAME, prints one line when it is held, and holds and renews it until INT, TERM or HUP, until
what --end-with names has ended, or for --max-hold; then gives it back. When the lock is lost before, the exit code is 121: stop any work
under it. "lockstep run" does that by itself.

Exit codes: 0 when the lock was held and given back, 128 + n if signal n ended the waiting, 143 when --end-with ended
the waiting, 1 (or -E) when the lock is busy, 64, 69, 121.`

func (a *App) holdCommand() *cobra.Command {
	var f claimFlags
	var end endWithFlag
	var maxHold span
	var plan holdPlan
	cmd := &cobra.Command{
		Use:   "hold NAME [flags]",
		Short: "Take a lock and hold it until told to end",
		Long:  holdLong,
		Example: `  lockstep hold billing/nightly
  lockstep hold billing/nightly --end-with parent -o json > held & # until the script ends
  coproc lockstep hold gpu --permits 1/3 --end-with stdin`,
		Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if plan.claimPlan, err = f.plan(a, "hold", args[0], describe(f.labels(), nil)); err != nil {
				return err
			}
			if plan.endWith, err = end.plan(a.Parent); err != nil {
				return err
			}
			plan.maxHold = maxHold.d
			if err := checkMaxHold(maxHold); err != nil {
				return err
			}
			return a.hold(cmd.Context(), plan)
		},
	}
	f.register(cmd.Flags(), lockstep.DefaultTTL)
	plan.out.register(cmd.Flags())
	end.register(cmd.Flags())
	cmd.Flags().Var(&maxHold, "max-hold", "give the lock back after this long (default: no bound)")
	return cmd
}

// printHeld prints one line that says that the lock is held.
func (a *App) printHeld(report grantReport, out output) error {
	if out == jsonOutput {
		return a.writeJSONLine(report)
	}
	_, err := fmt.Fprintf(a.Out, "%s: held, token %d, session %s\n", printable(report.Lock), report.Token, printable(report.Session))
	return err
}

// printAcquired prints the handle, or the token if the handle went to a file.
func (a *App) printAcquired(report grantReport, out output) error {
	var err error
	switch {
	case out == jsonOutput:
		return a.writeJSON(report)
	case report.Handle != "":
		_, err = fmt.Fprintln(a.Out, report.Handle)
	default:
		_, err = fmt.Fprintln(a.Out, report.Token)
	}
	return err
}

// lostWhileHeld is the error of a holder that lost its lock.
func lostWhileHeld(name string, err error) error {
	return exitError{CodeLost, fmt.Errorf("%s is lost: %w: %s", printable(name), err, goneAdvice)}
}
