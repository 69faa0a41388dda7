package node

import (
	"fmt"
	"sync"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// BenchmarkGrant takes and releases locks in several workers, each with its own lock, over five
// nodes in this process. It is the path of a grant without clients and gRPC.
func BenchmarkGrant(b *testing.B) {
	for _, workers := range []int{1, 64, 1024} {
		b.Run(fmt.Sprint(workers), func(b *testing.B) { benchmarkGrant(b, workers) })
	}
}

func benchmarkGrant(b *testing.B, workers int) {
	c := newCluster(b, 5, nil)
	leader := c.leader()
	per := (b.N + workers - 1) / workers
	clients := make([]*client, workers)
	for i := range clients {
		clients[i] = c.connect(leader)
		clients[i].open()
	}
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, cl := range clients {
		wg.Go(func() {
			name := fmt.Sprintf("bench/%d", i)
			for seq := range uint64(per) {
				token := cl.acquire(seq+1, name)
				cl.call(lead.Release{Claim: command.Release{Session: cl.session, Seq: seq + 1, Token: token}})
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(per*workers)/b.Elapsed().Seconds(), "grants/s")
	for _, cl := range clients {
		leader.Disconnect(cl.id)
	}
}
