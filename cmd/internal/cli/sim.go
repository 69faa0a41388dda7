package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep/sim"
)

// simFlags are the flags of sim.
type simFlags struct {
	options  sim.Options
	duration span
	seeds    int
	trace    bool
}

// A simReport is the output of "sim". Seed and Promise belong to the first failure.
type simReport struct {
	sim.Summary
	Seed    *uint64 `json:"seed,omitempty"`
	Promise string  `json:"promise,omitempty"`
}

func (a *App) simCommand() *cobra.Command {
	var f simFlags
	var out output
	cmd := &cobra.Command{
		Use:   "sim [flags]",
		Short: "Run the deterministic simulator and check every invariant",
		Long: `Runs whole clusters with clients and faults in a deterministic simulator, one seed after another,
and checks the promises of the service after every step. The same seed produces the
same run, step by step. The exit code is 1 if a promise was broken.`,
		Example: "  lockstep sim --seeds 300\n  lockstep sim --seed 4711 --seeds 1 --trace",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.sim(cmd, &f, out)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&f.seeds, "seeds", 10, "number of seeds to run")
	flags.Uint64Var(&f.options.Seed, "seed", 1, "the first seed")
	flags.IntVar(&f.options.Nodes, "nodes", 0, "nodes of the cluster, 3 or 5 (0: chosen by the seed)")
	flags.IntVar(&f.options.Clients, "clients", 0, "concurrent clients, 1 to 50 (0: chosen by the seed)")
	f.duration = span{30 * time.Second, true}
	flags.Var(&f.duration, "duration", "simulated time with faults, up to 3600")
	flags.BoolVar(&f.options.Calm, "calm", false, "no faults")
	flags.StringSliceVar(&f.options.Without, "without", nil, "`kinds` of faults to leave out, separated by commas")
	flags.BoolVar(&f.trace, "trace", false, "print every step")
	out.register(flags)
	return cmd
}

func (f *simFlags) check() error {
	o := f.options
	switch {
	case f.seeds < 1 || f.seeds > 10_000_000:
		return usageError("--seeds: %d: must be 1 to 10000000", f.seeds)
	case o.Nodes != 0 && o.Nodes != 3 && o.Nodes != 5:
		return usageError("--nodes: %d: must be 3 or 5", o.Nodes)
	case o.Clients < 0 || o.Clients > 50:
		return usageError("--clients: %d: must be 1 to 50", o.Clients)
	case f.duration.d <= 0 || f.duration.d > time.Hour:
		return usageError("--duration: %v: must be above 0 and at most 1h", f.duration.d)
	}
	for _, kind := range o.Without {
		if !slices.Contains(sim.Kinds(), kind) {
			return usageError("--without: unknown kind of fault %q: must be some of %s", kind, strings.Join(sim.Kinds(), ", "))
		}
	}
	f.options.Duration = f.duration.d
	return nil
}

func (a *App) sim(cmd *cobra.Command, f *simFlags, out output) error {
	if f.trace {
		f.options.Trace = func(line string) { fmt.Fprintln(a.Out, line) }
	}
	report := simReport{Summary: sim.RunMany(cmd.Context(), f.options, f.seeds, nil)}
	if len(report.Failures) > 0 {
		first := report.Failures[0]
		report.Seed, report.Promise = &first.Seed, fmt.Sprint(first.Promise)
	}
	if out == jsonOutput {
		if err := a.writeJSON(report); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(a.Out, "%d seeds from %d: %.0f s simulated in %.1f s, %d events, %d grants, trace hash %s\n",
			report.Seeds, report.FirstSeed, report.SimulatedSeconds, report.WallSeconds, report.Events, report.Grants, report.TraceHash)
	}
	if report.Seed == nil {
		return nil
	}
	first := report.Failures[0]
	return exitError{CodeBusy, fmt.Errorf("seed %d breaks the promise %q after %v: %s", first.Seed, report.Promise, first.At, first.Detail)}
}
