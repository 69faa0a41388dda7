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

const acquireLong = `Waits for the lock NAME and leaves it held when this command ends, for later commands of a
script. It prints a handle, with which "renew" and "release" find the lock again. The handle is a
secret: anyone who has it can renew and release the lock. The other commands take it from
LOCKSTEP_HANDLE or from --handle-file, which is created with mode 0600; with --handle-file, acquire
prints only the token. An existing file is only replaced with --force: its handle may hold a lock.

Nothing renews the lock in the meantime. Run "lockstep renew" at least once every half of --ttl, and
stop all work that depends on the lock if it fails with 121: the lock was lost. If a single command
does all the work, use "lockstep run": it stops the command in time when the lock is lost.

Exit codes: 0 if the lock is held, 128 + n if signal n ended the wait, 1 (or -E) if it is busy, 64, 69.`

func (a *App) acquireCommand() *cobra.Command {
	var f claimFlags
	var plan acquirePlan
	cmd := &cobra.Command{
		Use:   "acquire NAME [flags]",
		Short: "Acquire a lock and leave it held, for use in scripts",
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
		Short: "Renew a lock taken with \"acquire\"",
		Long: `Renews the lock whose handle is in LOCKSTEP_HANDLE or --handle-file for its full TTL. The exit code
is 121 if the lock was lost, and 69 if the service cannot be reached; in that case the lock is held until
its lease ends, and renew can be retried.`,
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
	f := handleFlags{advice: "nothing to release: it was released before, or it was lost and others may have held it in the meantime"}
	cmd := &cobra.Command{
		Use:   "release [flags]",
		Short: "Release a lock taken with \"acquire\"",
		Long: `Releases the lock whose handle is in LOCKSTEP_HANDLE or --handle-file, and removes the file. The exit
code is 121 if the lock was lost before: others may have held it in the meantime. The file is removed
in that case too.`,
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
		return usageError("unexpected argument: a handle is a secret and does not belong on a command line: pass it in %s or --handle-file", handleVariable)
	}
	return nil
}

// A holdPlan is what hold was asked to do, after validation.
type holdPlan struct {
	claimPlan
	maxHold time.Duration // 0: no limit
	out     output
}

const holdLong = `Waits for the lock NAME, prints one line once it is held, and renews it until INT, TERM or HUP, until
what --end-with names has ended, or for --max-hold; then releases it. If the lock is lost earlier, the
exit code is 121: stop all work that depends on it. "lockstep run" does that by itself.

Exit codes: 0 if the lock was held and released, 128 + n if signal n ended the wait, 143 if --end-with ended
the wait, 1 (or -E) if the lock is busy, 64, 69, 121.`

func (a *App) holdCommand() *cobra.Command {
	var f claimFlags
	var end endWithFlag
	var maxHold span
	var plan holdPlan
	cmd := &cobra.Command{
		Use:   "hold NAME [flags]",
		Short: "Acquire a lock and hold it until interrupted",
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
	cmd.Flags().Var(&maxHold, "max-hold", "release the lock after this long (default: no limit)")
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
	return exitError{CodeLost, fmt.Errorf("lost %s: %w: %s", printable(name), err, goneAdvice)}
}
