package fencetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// A recorder is a tb that only records.
type recorder struct {
	ctx      context.Context
	mu       sync.Mutex
	failures []string
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// record runs one check as Run would and returns what it complains about.
func record(t *testing.T, g Guard, name string) []string {
	t.Helper()
	g = g.withDefaults()
	at := slices.IndexFunc(checks(), func(c check) bool { return c.name == name })
	if at < 0 {
		t.Fatalf("no check is called %q", name)
	}
	c := checks()[at]
	if missing := c.missing(g, g.Open(t, resourceName("probe"))); missing != "" {
		t.Fatalf("the check does not apply: %s", missing)
	}
	r := &recorder{ctx: t.Context()}
	done := make(chan struct{})
	go func() { // a separate goroutine, since Fatalf ends it
		defer close(done)
		runCheck(r, t, g, c)
	}()
	<-done
	return r.failures
}
