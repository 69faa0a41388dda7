package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep/cmd/internal/backend"
	"github.com/lockstep-dev/lockstep/cmd/internal/demo"
)

func (a *App) demoCommand() *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch five nodes keep a job exclusive while things break",
		Long: `Demo starts five servers on this machine, runs competing jobs, kills the leader in the
middle, freezes a holder beyond its lease, and takes the quorum away. It tells what it
does and why, checks every step, and exits 0 only if all of them held. It takes
less than 40 seconds and leaves nothing behind.

With --backend it runs the jobs on a backend that is there already, and breaks only
what it has started itself. It uses names of its own.`,
		Example: "  lockstep demo\n  lockstep demo --backend etcd://127.0.0.1:2379\n  lockstep demo redlock",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if url == "" {
				return a.demo(cmd.Context(), demo.Run)
			}
			if _, err := backend.Parse(url); err != nil {
				return usageError("--backend: %w", err)
			}
			return a.demo(cmd.Context(), func(ctx context.Context, cfg demo.Config) error { return demo.RunOn(ctx, cfg, url) })
		},
	}
	cmd.Flags().StringVar(&url, "backend", "", "show it on the backend at this `URL`")
	cmd.AddCommand(a.demoRedlockCommand())
	return cmd
}

func (a *App) demoRedlockCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "redlock",
		Short: "Watch what breaks Redlock, and what keeps the data whole",
		Long: `Starts five Redis servers for each step and shows a clock jump, a restart without
persistence and a pause of the holder: each time two clients act under one lock, the later
one has the larger token, and a guarded file refuses the older one. It needs redis-server and
gcc (Debian: apt-get install redis-server gcc libc6-dev), takes about half a minute and
leaves nothing behind.`,
		Example: "  lockstep demo redlock",
		Args:    exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), demo.RunRedlock) },
	}
}

func (a *App) demo(ctx context.Context, show func(context.Context, demo.Config) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	return show(ctx, demo.Config{Binary: binary, Out: a.Out})
}
