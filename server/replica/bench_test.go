package replica

import (
	"fmt"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// BenchmarkGrants takes and releases 512 names a turn on three replicas with disks and a network
// that take no time, so it shows the CPU of all three.
func BenchmarkGrants(b *testing.B) {
	c := newCluster(b, 3, nil)
	c.diskTime = 0
	h := c.leader()
	var clients []*client
	for i := range 512 {
		k := c.open(h, 300_000)
		k.seq = uint64(i)
		clients = append(clients, k)
	}
	names := make([]string, len(clients))
	for i := range names {
		names[i] = fmt.Sprintf("bench/%d", i)
	}
	grants := 0
	for b.Loop() {
		for i, k := range clients {
			k.send(lead.Acquire{Claim: command.Acquire{Seq: k.seq + 1, Floor: k.seq + 1, Spec: spec(names[i])}})
			k.seq++
		}
		c.until(second, "grants", func() bool { return len(h.replies) == len(clients) })
		for i, r := range h.replies {
			claim := r.Answer.(lead.Claimed).Claim
			clients[i].send(lead.Release{Claim: command.Release{Seq: claim.Seq, Token: claim.Token}})
		}
		h.replies = nil
		c.until(second, "releases", func() bool { return answers(h) == len(clients) })
		h.replies = nil
		grants += len(clients)
		for _, o := range c.hosts {
			o.applied, o.events = nil, nil
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(grants), "ns/grant")
}

// answers counts the replies that answer a request; the end of a claim is news as well.
func answers(h *host) (n int) {
	for _, r := range h.replies {
		if r.Tag != 0 {
			n++
		}
	}
	return n
}

// BenchmarkKeepAlives renews 10,000 sessions in each round.
func BenchmarkKeepAlives(b *testing.B) {
	c := newCluster(b, 3, func(cfg *Config) { cfg.QueueCommands = 20_000 })
	h := c.leader()
	var clients []*client
	for range 10_000 {
		k := &client{c: c, host: h, stream: c.newStream()}
		k.send(lead.Open{TTL: 300_000, Attach: true, ClientNumbered: true})
		clients = append(clients, k)
	}
	c.until(5*second, "sessions", func() bool { return len(h.replies) == len(clients) })
	for i, r := range h.replies {
		clients[i].id = r.Session
	}
	h.replies = nil
	renewals := 0
	for b.Loop() {
		for _, k := range clients {
			k.send(lead.KeepAlive{})
		}
		c.until(second, "renewals", func() bool { return len(h.replies) == len(clients) })
		h.replies = nil
		renewals += len(clients)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(renewals), "ns/renewal")
}
