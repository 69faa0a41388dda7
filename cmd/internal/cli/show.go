package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
)

// maxWaiters is how many waiters the service tells at most.
const maxWaiters = 16384

func (a *App) showCommand() *cobra.Command {
	var target targetFlags
	var out output
	var waiters uint32
	cmd := &cobra.Command{
		Use:     "show NAME [flags]",
		Short:   "Show who holds a lock and who waits for it",
		Long:    "Shows who holds a lock and who waits for it, in the order in which they will get it.\nA lock that nobody holds or waits for is free; that is no error.",
		Example: "  lockstep show billing/nightly\n  lockstep show billing/nightly -o json | jq '.holders[0].metadata.host'",
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := lockstep.CheckName(args[0]); err != nil {
				return err
			}
			if waiters < 1 || waiters > maxWaiters {
				return usageError("--waiters: %d: must be 1 to %d", waiters, maxWaiters)
			}
			return target.withAdmin(func(admin *client.Admin) error {
				l, err := admin.Lock(cmd.Context(), args[0], waiters)
				if err != nil {
					return err
				}
				report := reportLock(l)
				if out == jsonOutput {
					return a.writeJSON(report)
				}
				report.write(a.Out, time.Now())
				return nil
			})
		},
	}
	target.register(cmd.Flags())
	out.register(cmd.Flags())
	cmd.Flags().Uint32Var(&waiters, "waiters", 100, "show so many waiters at most")
	return cmd
}
