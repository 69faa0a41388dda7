package service_test

import (
	"fmt"
	"testing"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// BenchmarkStream takes and releases locks over one stream of a cluster of one with its disk in
// memory: what remains is the cost of the service, the replica and gRPC on both sides. One
// operation is a grant and its release.
func BenchmarkStream(b *testing.B) {
	for _, workers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			benchmarkStream(b, workers)
		})
	}
}

func benchmarkStream(b *testing.B, workers int) {
	m := startCluster(b, clusterOptions{nodes: 1}).leader()
	l := connect(b, m)
	o := l.open(60_000)
	seq, floor := uint64(0), uint64(0)
	live := map[uint64]bool{}
	acquire := func(worker uint64) *pb.ClientRequest {
		seq++
		live[seq] = true
		for floor++; !live[floor]; floor++ {
		}
		floor--
		r := acquire(worker, o.GetSession(), seq, fmt.Sprintf("jobs/%d", worker))
		r.GetAcquire().Floor = floor
		return r
	}
	var frame []*pb.ClientRequest
	for w := range min(workers, b.N) {
		frame = append(frame, acquire(uint64(w)))
	}
	started := len(frame)
	b.ReportAllocs()
	b.ResetTimer()
	l.send(frame...)
	for done := 0; done < b.N; {
		e := l.event()
		frame = frame[:0:0]
		for {
			switch c := e.GetClaim(); c.GetState() {
			case pb.ClaimState_CLAIM_STATE_GRANTED:
				frame = append(frame, release(e.GetTag(), o.GetSession(), c))
			case pb.ClaimState_CLAIM_STATE_RELEASED:
				done++
				delete(live, c.GetSeq())
				if started < b.N {
					started++
					frame = append(frame, acquire(e.GetTag()))
				}
			default:
				b.Fatalf("got %v", e)
			}
			if len(l.events) == 0 {
				break
			}
			e = l.event()
		}
		l.send(frame...)
	}
}
