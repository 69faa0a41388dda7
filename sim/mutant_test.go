package sim

import (
	"context"
	"flag"
	"strings"
	"testing"
	"time"
)

var (
	mutant = flag.String("mutant", "", "the planted bug that this binary was built with, for TestMutantIsFound")
	limit  = flag.Duration("limit", 2*time.Minute, "how long TestMutantIsFound may look for it")
)

// TestMutantIsFound is run by mutants.sh, in a build that has a bug. It tries seeds until
// one fails.
func TestMutantIsFound(t *testing.T) {
	if *mutant == "" {
		t.Skip("no bug is planted: see mutants.sh")
	}
	ctx, cancel := context.WithTimeout(t.Context(), *limit)
	defer cancel()
	start := time.Now()
	o := options()
	for n := 1; ctx.Err() == nil; n++ {
		r := Run(o)
		if f := r.Failure; f != nil {
			detail, _, _ := strings.Cut(f.Detail, "\n")
			t.Logf("found after %d seeds and %.1f s: %s: %s", n, time.Since(start).Seconds(), f.Promise, detail)
			if small, r := Shrink(ctx, o, r, 60); r.Failure == nil || r.Failure.Promise != f.Promise {
				t.Errorf("shrunk to %+v, it no longer breaks the promise", small)
			} else {
				t.Logf("shrunk to %d clients, %v and the faults %q", small.Clients, small.Duration, r.Faults)
			}
			return
		}
		o.Seed++
	}
	t.Errorf("NOT FOUND: %d seeds in %v", o.Seed-*first, *limit)
}
