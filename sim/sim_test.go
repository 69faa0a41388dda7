package sim

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/sim/check"
)

var (
	seeds   = flag.Int("seeds", 16, "how many seeds TestSeedsHoldTheirPromises runs")
	first   = flag.Uint64("seed", 1, "the first of them")
	length  = flag.Duration("length", 30*time.Second, "simulated time of each")
	lines   = flag.Bool("lines", false, "print the whole trace")
	without = flag.String("without", "", "kinds of faults to leave out, split by commas")
)

func options() Options {
	return Options{Seed: *first, Duration: *length, Without: strings.Split(*without, ",")}
}

// tracer prints the whole trace if asked to.
func tracer(t *testing.T) func(string) {
	if !*lines {
		return nil
	}
	return func(line string) { t.Log(line) }
}

func mustHold(t *testing.T, fs []Failure) {
	t.Helper()
	for _, f := range fs {
		t.Errorf("seed %d at %v: %s: %s\n%s", f.Seed, f.At, f.Promise, f.Detail, strings.Join(f.Trace, "\n"))
	}
}

func TestSeedsHoldTheirPromises(t *testing.T) {
	o := options()
	o.Trace = tracer(t)
	s := RunMany(context.Background(), o, *seeds, func(r Report) {
		t.Logf("seed %d: %d nodes, %v, %d events, %d entries, %d grants, faults %v",
			r.Seed, r.Nodes, r.Simulated.Round(time.Millisecond), r.Events, r.Entries, r.Grants, r.Faults)
	})
	t.Logf("%d seeds in %.1f s, unreached %q", s.Seeds, s.WallSeconds, s.Unreached)
	for _, k := range slices.Sorted(maps.Keys(s.Counters)) {
		t.Logf("%-50s %d", k, s.Counters[k])
	}
	mustHold(t, s.Failures)
}

// TestSeedsThatFailedOnceHold runs the seeds of testdata/seeds: each showed a fault when it was
// added.
func TestSeedsThatFailedOnceHold(t *testing.T) {
	files, err := filepath.Glob("testdata/seeds/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var kept struct {
				Why     string
				Seed    uint64
				Nodes   int
				Seconds int
			}
			if err := json.Unmarshal(text, &kept); err != nil {
				t.Fatal(err)
			}
			r := Run(Options{Seed: kept.Seed, Nodes: kept.Nodes, Duration: time.Duration(kept.Seconds) * time.Second})
			if r.Failure != nil {
				mustHold(t, []Failure{*r.Failure})
			}
		})
	}
}

func TestACalmClusterServes(t *testing.T) {
	r := Run(Options{Seed: 1, Calm: true, Duration: 10 * time.Second})
	if r.Failure != nil {
		mustHold(t, []Failure{*r.Failure})
	}
	if r.Grants < 50 {
		t.Errorf("%d grants in 10 s", r.Grants)
	}
	for _, what := range []string{nodeCrashed, messageLost, "session over: lease ended", "lost: lease ended"} {
		if n := r.Counters[what]; n != 0 {
			t.Errorf("%s %d times without a fault", what, n)
		}
	}
}

// TestWhatAFailoverBearsLosesNothing: a lease of 10 s outlives crashes of leaders, handovers, torn
// streams and lost messages, so no client that is well may lose a lock or its session to them.
func TestWhatAFailoverBearsLosesNothing(t *testing.T) {
	for seed := *first; seed < *first+uint64(*seeds)/4; seed++ {
		r := Run(Options{
			Seed: seed, Duration: *length, TTL: 10 * time.Second, Trace: tracer(t),
			Only: []string{"leader crash", "hand-over", "campaign", "stream torn", "double", "reorder", "wall jump", "loop stutter"},
		})
		if r.Failure != nil {
			mustHold(t, []Failure{*r.Failure})
		}
		for _, what := range []string{"lost: lease ended", "session over: lease ended", "session over: session expired"} {
			if n := r.Counters[what]; n != 0 {
				t.Errorf("seed %d: %s %d times", seed, what, n)
			}
		}
	}
}

func TestTheSameSeedGivesTheSameTrace(t *testing.T) {
	o := Options{Seed: 7, Duration: 10 * time.Second}
	a, b := Run(o), Run(o)
	if a.TraceHash != b.TraceHash || a.Events != b.Events {
		t.Errorf("seed %d: hash %s after %d events, then %s after %d", o.Seed, a.TraceHash, a.Events, b.TraceHash, b.Events)
	}
	o.Seed++
	if c := Run(o); c.TraceHash == a.TraceHash {
		t.Errorf("seeds %d and %d have one hash", o.Seed-1, o.Seed)
	}
}

func TestTheSameSeedGivesTheSameTraceInAnotherProcess(t *testing.T) {
	const child = "LOCKSTEP_SIM_CHILD"
	o := Options{Seed: 12, Duration: 10 * time.Second}
	if os.Getenv(child) != "" {
		fmt.Printf("hash %s\n", Run(o).TraceHash)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	Run(Options{Seed: 99, Duration: time.Second}) // earlier runs in a process leave no trace
	if want := "hash " + Run(o).TraceHash; !strings.Contains(string(out), want) {
		t.Errorf("here %s, in another process %s", want, out)
	}
}

func TestAPanicOfTheServiceIsAFinding(t *testing.T) {
	w := newWorld(Options{Seed: 1, Duration: time.Second})
	w.guarded(func() { panic("diverged") })
	if w.failure == nil || w.failure.Promise != check.NoPanic || !strings.Contains(w.failure.Detail, "diverged") {
		t.Errorf("failure = %+v", w.failure)
	}
}

func TestRunManyStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := RunMany(ctx, Options{Seed: 1, Duration: time.Second, Calm: true}, 1000, func(Report) { cancel() })
	if s.Seeds != 1 {
		t.Errorf("%d seeds ran", s.Seeds)
	}
}
