package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/cmd/internal/bench"
)

func (a *App) benchCommand() *cobra.Command {
	var (
		out      output
		target   targetFlags
		workload string
		ttl      = span{lockstep.DefaultTTL, true}
		duration = span{10 * time.Second, true}
		cfg      bench.Config
	)
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast locks are granted",
		Long: `Bench runs workers that acquire and release a lock in a closed loop for a set time.
With the workload "free", each worker has its own name; with "hot", all share one.
It prints grants per second, the latency from request to grant, and the longest
time without a grant. It fails if the tokens of a name do not increase.`,
		Example: `  lockstep bench --workload free --workers 64 --duration 10s
  lockstep bench --workload hot --workers 64 -o json`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.Workload, err = bench.ParseWorkload(workload); err != nil {
				return usageError("--workload: %w", err)
			}
			t, err := target.target()
			if err != nil {
				return err
			}
			t.TTL, cfg.Duration = ttl.d, duration.d
			cfg.Connect = func() (lockstep.Locker, error) { return a.OpenLocker(t) }
			return a.bench(cmd.Context(), cfg, out)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&workload, "workload", string(bench.Free), "`free`: a separate name for each worker; hot: one name for all")
	flags.IntVar(&cfg.Workers, "workers", 64, "number of concurrent workers")
	flags.IntVar(&cfg.Clients, "clients", 0, "number of clients that the workers share, each with its own session (0: one per 64 workers)")
	flags.Var(&duration, "duration", "duration of the measurement, at least 1")
	flags.StringVar(&cfg.Prefix, "prefix", "bench", "prefix of the lock names")
	flags.Var(&ttl, "ttl", "TTL of each session, 1 to 300")
	target.register(flags)
	out.register(flags)
	return cmd
}

func (a *App) bench(ctx context.Context, cfg bench.Config, out output) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	clear := a.progress(&cfg)
	result, err := bench.Run(ctx, cfg)
	clear()
	if err != nil {
		return err
	}
	if err := a.showBench(result, out); err != nil {
		return err
	}
	switch {
	case result.Regressions > 0:
		return fmt.Errorf("%d tokens did not increase", result.Regressions)
	case result.Grants == 0:
		return exitError{CodeUnavailable, errors.New("nothing was granted: " + result.FirstError)}
	}
	return nil
}

// progress shows the progress of the measurement at a terminal, until clear is called.
func (a *App) progress(cfg *bench.Config) (clear func()) {
	f, ok := a.Err.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func() {}
	}
	whole := cfg.Duration.Seconds()
	cfg.Progress = func(elapsed time.Duration, grants int64) {
		fmt.Fprintf(f, "\r%3.0f s of %.0f s, %d grants", elapsed.Seconds(), whole, grants)
	}
	return func() { fmt.Fprint(f, "\r\033[K") }
}

func (a *App) showBench(r bench.Result, out output) error {
	if out == jsonOutput {
		return a.writeJSON(r)
	}
	t := a.table()
	fmt.Fprintf(t, "workload\t%s, %d workers, %d clients\n", r.Workload, r.Workers, r.Clients)
	fmt.Fprintf(t, "grants\t%d in %.1f s, %.0f/s\n", r.Grants, r.Seconds, r.GrantsPerSecond)
	fmt.Fprintf(t, "latency\tp50 %.2f ms, p99 %.2f ms, max %.2f ms\n", r.P50, r.P99, r.Max)
	fmt.Fprintf(t, "longest gap\t%.1f ms without a grant\n", r.LongestGap)
	fmt.Fprintf(t, "errors\t%d %s\n", r.Errors, printable(r.FirstError))
	return t.Flush()
}
