package bench

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/memlock"
)

func TestAWorkloadIsCounted(t *testing.T) {
	for _, workload := range []Workload{Free, Hot} {
		space := memlock.NewSpace()
		got, err := Run(t.Context(), Config{
			Workload: workload, Workers: 8, Clients: 2, Duration: time.Second,
			Connect: func() (lockstep.Locker, error) { return space.Locker(), nil },
		})
		if err != nil {
			t.Fatalf("%s: %v", workload, err)
		}
		if got.Grants == 0 || got.Errors != 0 || got.Regressions != 0 || got.HighestToken < uint64(got.Grants) {
			t.Errorf("%s: %+v", workload, got)
		}
		if got.P50 <= 0 || got.P50 > got.P99 || got.P99 > got.Max {
			t.Errorf("%s: p50 %v, p99 %v, max %v do not rise", workload, got.P50, got.P99, got.Max)
		}
	}
}

func TestTokensThatGoBackAreCounted(t *testing.T) {
	var last tokens
	for _, token := range []lockstep.Token{3, 5, 5, 4, 9} {
		last.rise(token)
	}
	if got := last.regressions.Load(); got != 2 {
		t.Errorf("%d regressions in 3 5 5 4 9, want 2", got)
	}
}

func TestTheLongestGapIsFound(t *testing.T) {
	start := time.Unix(0, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var g gaps
	g.start(start)
	for _, ms := range []int{10, 30, 25, 100, 110} {
		g.grant(at(ms))
	}
	if got := g.longest(); got != 70*time.Millisecond {
		t.Errorf("longest gap %v, want 70ms", got)
	}
	g.end(at(400))
	g.grant(at(2000))
	if got := g.longest(); got != 290*time.Millisecond {
		t.Errorf("longest gap %v, want the 290ms to the end", got)
	}
}

func TestABadConfigNamesTheFieldAndTheLimit(t *testing.T) {
	tests := map[string]Config{
		"workers 0":   {Workload: Free, Duration: time.Second},
		"clients 9":   {Workload: Free, Workers: 4, Clients: 9, Duration: time.Second},
		"duration 1m": {Workload: Free, Workers: 4, Duration: time.Millisecond},
	}
	for want, cfg := range tests {
		if _, err := Run(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
	if _, err := ParseWorkload("cold"); err == nil || !strings.Contains(err.Error(), `"free" or "hot"`) {
		t.Errorf("workload cold: %v", err)
	}
}
