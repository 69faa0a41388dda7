//go:build unix

package backend_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/cmd/internal/backend"
	"github.com/lockstep-dev/lockstep/cmd/internal/bench"
)

// BenchmarkBackends measures a closed loop of acquire and release on each backend, with all servers
// on this machine and syncing to disk. Run it with -benchtime=1x: a measurement has its own
// duration.
func BenchmarkBackends(b *testing.B) {
	binary := build(b)
	for _, each := range stages {
		b.Run(each.name, func(b *testing.B) {
			s := each.start(b, binary)
			u, err := backend.Parse(s.url)
			must(b, err)
			connect := func() (lockstep.Locker, error) {
				return backend.Open(u, backend.Options{TTL: 10 * time.Second, Connect: 10 * time.Second})
			}
			for _, load := range []struct {
				workload bench.Workload
				workers  int
			}{{bench.Free, 1}, {bench.Free, 16}, {bench.Free, 64}, {bench.Hot, 16}} {
				b.Run(fmt.Sprintf("%s with %d", load.workload, load.workers), func(b *testing.B) {
					for b.Loop() {
						measure(b, bench.Config{Workload: load.workload, Workers: load.workers, Duration: 3 * time.Second, Connect: connect})
					}
				})
			}
		})
	}
}

func measure(b *testing.B, cfg bench.Config) {
	r, err := bench.Run(b.Context(), cfg)
	must(b, err)
	if r.Regressions > 0 {
		b.Errorf("%d tokens did not increase", r.Regressions)
	}
	b.ReportMetric(r.GrantsPerSecond, "grants/s")
	b.ReportMetric(r.P50, "p50-ms")
	b.ReportMetric(r.P99, "p99-ms")
	b.ReportMetric(0, "ns/op")
}
