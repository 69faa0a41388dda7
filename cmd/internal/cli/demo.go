package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/lockstep-dev/lockstep/cmd/internal/backend"
	"github.com/lockstep-dev/lockstep/cmd/internal/demo"
	"github.com/lockstep-dev/lockstep/cmd/internal/demo/account"
	"github.com/lockstep-dev/lockstep/cmd/internal/demo/actor"
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
	cmd.AddCommand(a.demoPauseCommand(), a.demoRedlockCommand(), a.demoActorCommand())
	return cmd
}

func (a *App) demoPauseCommand() *cobra.Command {
	var p demo.Pause
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Watch a client write too late, with and without a guard",
		Long: `Two processes, A and B, change an account under one lock. A reads, looks at its lease, and is
then frozen beyond it; B is granted the lock and writes; A goes on and writes what it had
computed. Then the same with a network cut between A and the lock service, and with a leader
that dies while A is frozen. The account is kept twice: the plain one loses what B wrote, each
time, and the guarded one refuses A. A timeline shows leases, grants, writes and refusals.

The lock service and the store are started for it, so their programs must be installed; a
backend that is there already can be named by its URL, and is then left alone. It takes about
half a minute, needs no root, and leaves nothing behind. It exits 0 only if all of this was seen.`,
		Example: "  lockstep demo pause\n  lockstep demo pause --store postgres --svg pause.svg\n  lockstep demo pause --backend etcd",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(account.Kinds(), p.Store) {
				return usageError("--store: want one of %s", strings.Join(account.Kinds(), ", "))
			}
			if err := checkPauseBackend(p.Backend); err != nil {
				return err
			}
			p.Width = columns()
			return a.demo(cmd.Context(), func(ctx context.Context, cfg demo.Config) error { return demo.RunPause(ctx, cfg, p) })
		},
	}
	cmd.Flags().StringVar(&p.Backend, "backend", demo.PauseBackends()[0], fmt.Sprintf("where the locks are: `name`, one of %s, or the URL of one that runs", strings.Join(demo.PauseBackends(), ", ")))
	cmd.Flags().StringVar(&p.Store, "store", account.Kinds()[0], fmt.Sprintf("where the accounts are: `name`, one of %s", strings.Join(account.Kinds(), ", ")))
	cmd.Flags().StringVar(&p.SVG, "svg", "", "draw the timelines as a picture into this `file`")
	return cmd
}

// columns returns the width of a timeline: the width of the terminal, within limits, or what fits
// on a page.
func columns() int {
	const page, most = 100, 132
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
		return min(width, most)
	}
	return page
}

func checkPauseBackend(which string) error {
	if slices.Contains(demo.PauseBackends(), which) {
		return nil
	}
	if _, err := backend.Parse(which); err != nil {
		return usageError("--backend: want one of %s, or a URL: %w", strings.Join(demo.PauseBackends(), ", "), err)
	}
	return nil
}

// demoActorCommand is the command that the processes A and B of a demo run.
func (a *App) demoActorCommand() *cobra.Command {
	var cfg actor.Config
	cmd := &cobra.Command{
		Use:     "actor",
		Short:   "Be one client of a demonstration",
		Hidden:  true,
		Example: "  echo acquire | lockstep demo actor --backend lockstep://127.0.0.1:7400 --store file:///tmp --name rent",
		Args:    exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return actor.Serve(cmd.Context(), cfg, os.Stdin, a.Out) },
	}
	cmd.Flags().StringVar(&cfg.Backend, "backend", "", "where the locks are, as a `URL`")
	cmd.Flags().StringVar(&cfg.Store, "store", "", "where the accounts are, as a `URL`")
	cmd.Flags().StringVar(&cfg.Name, "name", "", "`name` of the lock and of the account")
	cmd.Flags().StringVar(&cfg.Cable, "cable", "", "`host:port` of the proxy to the backend")
	cmd.Flags().DurationVar(&cfg.TTL, "ttl", 0, "lease of the lock")
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

// An interruption is the signal that ended a demo.
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
