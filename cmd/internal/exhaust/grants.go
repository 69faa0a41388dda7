package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
)

// A result is the output of grants, with times in milliseconds.
type result struct {
	Grants int     `json:"grants"`
	Failed int     `json:"failed"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`
	Error  string  `json:"error,omitempty"` // the last error
}

// patience bounds one grant.
const patience = 10 * time.Second

// grants takes locks at a steady rate, whether or not earlier requests have finished: a stalled
// service does not get fewer requests. Latency is measured from the time at which the request was
// due.
func grants(ctx context.Context, o *options, _ string) error {
	c, err := client.New(client.Config{Endpoints: strings.Split(o.endpoints, ",")})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }() // its locks are already free
	var (
		mu   sync.Mutex
		took []time.Duration
		r    result
		all  sync.WaitGroup
	)
	every := time.Second / time.Duration(o.rate)
	begin := time.Now()
	for i := range int(o.duration / every) {
		due := begin.Add(time.Duration(i) * every)
		time.Sleep(time.Until(due))
		all.Go(func() {
			err := grant(ctx, c, fmt.Sprintf("exhaust/%d", i))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				r.Failed, r.Error = r.Failed+1, err.Error()
				return
			}
			took = append(took, time.Since(due))
		})
	}
	all.Wait()
	slices.Sort(took)
	if n := len(took); n > 0 {
		r.Grants, r.P50, r.P99, r.Max = n, ms(took[n/2]), ms(took[n*99/100]), ms(took[n-1])
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func grant(ctx context.Context, c lockstep.Locker, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l, err := c.Acquire(ctx, name)
	if err != nil {
		return err
	}
	return l.Release(context.WithoutCancel(ctx))
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
