package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
)

// maxWaiters is the most waiters that the service returns.
const maxWaiters = 16384

func (a *App) showCommand() *cobra.Command {
	var target targetFlags
	var out output
	var waiters uint32
	cmd := &cobra.Command{
		Use:     "show NAME [flags]",
		Short:   "Show who holds a lock and who waits for it",
		Long:    "Shows who holds a lock and who waits for it, in the order in which the waiters will get it.\nA lock that nobody holds or waits for is free; that is not an error.",
		Example: "  lockstep show billing/nightly\n  lockstep show billing/nightly -o json | jq '.holders[0].metadata.host'",
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := lockstep.CheckName(args[0]); err != nil {
				return err
			}
			if waiters < 1 || waiters > maxWaiters {
				return usageError("--waiters: %d: must be 1 to %d", waiters, maxWaiters)
			}
			report, err := a.lockReport(cmd.Context(), &target, args[0], waiters)
			if err != nil {
				return err
			}
			if out == jsonOutput {
				return a.writeJSON(report)
			}
			report.write(a.Out, time.Now())
			return nil
		},
	}
	target.register(cmd.Flags())
	out.register(cmd.Flags())
	cmd.Flags().Uint32Var(&waiters, "waiters", 100, "show at most this many waiters")
	return cmd
}

// lockReport asks the service, or another backend to the extent that it can tell.
func (a *App) lockReport(ctx context.Context, flags *targetFlags, name string, waiters uint32) (report lockReport, err error) {
	target, err := flags.target()
	if err != nil {
		return report, err
	}
	if !target.Backend.Native() {
		return a.inspect(ctx, target, name)
	}
	err = flags.withAdmin(a, func(admin *client.Admin) error {
		l, err := admin.Lock(ctx, name, waiters)
		report = reportLock(l)
		return err
	})
	return report, err
}

func (a *App) inspect(ctx context.Context, target Target, name string) (lockReport, error) {
	target.TTL = lockstep.DefaultTTL // no lock is taken
	locker, err := a.OpenLocker(target)
	if err != nil {
		return lockReport{}, err
	}
	defer locker.Close(ctx)
	inspector, ok := locker.(lockstep.Inspector)
	if !ok {
		return lockReport{}, fmt.Errorf("%w: backend %s cannot show who holds a lock", lockstep.ErrUnsupported, locker.Capabilities().Backend)
	}
	ctx, cancel := context.WithTimeout(ctx, target.Connect)
	defer cancel()
	state, err := inspector.Inspect(ctx, name)
	return reportState(state), err
}
