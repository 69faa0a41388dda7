package locktest

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
	cleanups []func()
}

func (r *recorder) Helper()             {}
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Context() context.Context {
	return r.ctx
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// record runs one check as Run would and returns what it complains about.
func record(t *testing.T, b Backend, name string) []string {
	t.Helper()
	b = b.withDefaults()
	probe := b.New(t)
	defer probe.Close(t.Context())
	at := slices.IndexFunc(checks(), func(c check) bool { return c.name == name })
	if at < 0 {
		t.Fatalf("no check is called %q", name)
	}
	c := checks()[at]
	if missing := b.missing(probe, c); missing != "" {
		t.Fatalf("the check does not apply: %s", missing)
	}
	r := &recorder{ctx: t.Context()}
	done := make(chan struct{})
	go func() { // a separate goroutine, since Fatalf ends it
		defer close(done)
		defer func() {
			for _, f := range slices.Backward(r.cleanups) {
				f()
			}
		}()
		c.run(newEnv(r, t, b, probe.Capabilities()))
	}()
	<-done
	return r.failures
}
