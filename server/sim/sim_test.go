package sim

import (
	"context"
	"flag"
	"strings"
	"testing"
	"time"
)

var (
	seeds   = flag.Int("seeds", 6, "how many seeds TestSeeds runs")
	first   = flag.Uint64("seed", 1, "the first of them")
	length  = flag.Duration("length", 30*time.Second, "simulated time of each")
	verbose = flag.Bool("lines", false, "print the whole trace")
	without = flag.String("without", "", "kinds of faults to leave out, split by commas")
)

func options() Options {
	return Options{Seed: *first, Duration: *length, Without: strings.Split(*without, ",")}
}

func mustHold(t *testing.T, fs []Failure) {
	t.Helper()
	for _, f := range fs {
		t.Errorf("seed %d at %v: %s: %s\n%s", f.Seed, f.At, f.Promise, f.Detail, strings.Join(f.Trace, "\n"))
	}
}

func TestSeedsHoldTheirPromises(t *testing.T) {
	o := options()
	if *verbose {
		o.Trace = func(line string) { t.Log(line) }
	}
	s := RunMany(context.Background(), o, *seeds, func(r Report) {
		t.Logf("seed %d: %d nodes, %v, %d events, %d entries, %d grants, faults %v", r.Seed, r.Nodes, r.Simulated.Round(time.Millisecond), r.Events, r.Entries, r.Grants, r.Faults)
	})
	t.Logf("%d seeds in %.1f s, unreached %q", s.Seeds, s.WallSeconds, s.Unreached)
	for k, v := range s.Counters {
		t.Logf("%-50s %d", k, v)
	}
	mustHold(t, s.Failures)
}

func TestACalmClusterServes(t *testing.T) {
	r := Run(Options{Seed: 1, Calm: true, Duration: 10 * time.Second})
	if r.Failure != nil {
		mustHold(t, []Failure{*r.Failure})
	}
	if r.Grants < 50 {
		t.Errorf("%d grants in 10 s", r.Grants)
	}
}
