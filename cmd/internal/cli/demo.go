package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep/cmd/internal/backend"
	"github.com/lockstep-dev/lockstep/cmd/internal/demo"
)

func (a *App) demoCommand() *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch five nodes keep a job exclusive through failures",
		Long: `Demo starts five servers on this machine, runs competing jobs, kills the leader in the
middle, freezes a holder beyond its lease, and takes the quorum away. It explains what it
does and why, checks every step, and exits with 0 only if all checks pass. It takes
less than 40 seconds and cleans up after itself.

With --backend it runs the jobs on an existing backend, and breaks only what it started
itself. It uses lock names of its own.`,
		Example: "  lockstep demo\n  lockstep demo --backend etcd://127.0.0.1:2379",
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
	cmd.Flags().StringVar(&url, "backend", "", "run the demo on the backend at this `URL`")
	return cmd
}

// An interruption is the signal that ended a demonstration.
type interruption struct{ syscall.Signal }

func (i interruption) Error() string { return "interrupted by " + i.String() }

func (a *App) demo(ctx context.Context, show func(context.Context, demo.Config) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // by nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	go func() {
		select {
		case sig := <-signals:
			number, _ := sig.(syscall.Signal)
			cancel(interruption{number})
		case <-ctx.Done():
		}
	}()
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	err = show(ctx, demo.Config{Binary: binary, Out: a.Out})
	if i, ok := errors.AsType[interruption](context.Cause(ctx)); ok && err != nil {
		return exitError{128 + int(i.Signal), i}
	}
	return err
}
