package machine

import (
	"fmt"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
)

func sharedHolders(b *testing.B, m *Machine, names, each int) {
	var id command.SessionID
	seq, left := uint64(0), 0
	for n := range names {
		for range each {
			if left == 0 {
				id, seq, left = apply(m, command.OpenSession{TTL: 1, ClientNumbered: true, Metadata: []command.Label{{Key: "host", Value: "h1"}}}).Results[0].Session, 0, 4000
			}
			seq++
			left--
			r := apply(m, command.Acquire{Session: id, Seq: seq, Floor: seq, Spec: command.Spec{
				Names: []string{fmt.Sprintf("shared/%04d", n)}, Mode: command.Shared, Metadata: []command.Label{{Key: "purpose", Value: "read"}},
			}})
			if r.Results[0].Claim.State != command.Granted {
				b.Fatal(r)
			}
		}
	}
}

func BenchmarkReadLock(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 50_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m, _ := opened(1)
			sharedHolders(b, m, 1, n)
			b.ReportAllocs()
			for b.Loop() {
				m.Lock("shared/0000", 1000, 100)
			}
		})
	}
}

func BenchmarkReadPage(b *testing.B) {
	m, _ := opened(1)
	sharedHolders(b, m, 1000, 200)
	b.ReportAllocs()
	for b.Loop() {
		m.Locks("", "", 1000)
	}
}
