package server

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/replica"
)

// A tally counts what this node applied since it started.
type tally struct {
	byKind  [machine.EventCancelled + 1]atomic.Uint64
	batches prometheus.Histogram // commands per entry
}

func newTally() *tally {
	return &tally{batches: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "lockstep_batch_commands",
		Help:    "Commands of an applied log entry.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 10), // 1 to 512, which is the largest batch
	})}
}

// applied is called on the node's loop.
func (t *tally) applied(entries []replica.Applied) {
	for i := range entries {
		if e := entries[i].Entry; e != nil {
			t.batches.Observe(float64(len(e.Commands)))
		}
	}
}

// count is called on the node's loop.
func (t *tally) count(events []machine.Event) {
	for i := range events {
		t.byKind[events[i].Kind].Add(1)
	}
}

// registry has the metrics of one node and nothing else.
func registry(n statusReader, t *tally) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&collector{node: n, tally: t},
		t.batches,
	)
	return r
}

// A collector reads one Status for each scrape, so that its figures fit together.
type collector struct {
	node  statusReader
	tally *tally
}

// A gauge is a figure of the node's Status.
type gauge struct {
	desc  *prometheus.Desc
	value func(node.Status) float64
}

func newGauge(name, help string, value func(node.Status) float64) gauge {
	return gauge{prometheus.NewDesc("lockstep_"+name, help, nil, nil), value}
}

var gauges = []gauge{
	newGauge("term", "Raft term.", func(s node.Status) float64 { return float64(s.Term) }),
	newGauge("applied_index", "Index of the last applied log entry.", func(s node.Status) float64 { return float64(s.Applied) }),
	newGauge("committed_index", "Index of the last committed log entry.", func(s node.Status) float64 { return float64(s.Commit) }),
	newGauge("is_leader", "1 if this node leads.", func(s node.Status) float64 { return truth(s.Role == node.Leader) }),
	newGauge("serving", "1 if this node leads and serves.", func(s node.Status) float64 { return truth(s.Serving) }),
	newGauge("has_leader", "1 if this node knows a leader.", func(s node.Status) float64 { return truth(s.Leader != 0) }),
	newGauge("sessions", "Live sessions.", func(s node.Status) float64 { return float64(s.Counts.Sessions) }),
	newGauge("names", "Names that are held or waited for.", func(s node.Status) float64 { return float64(s.Counts.Names) }),
	newGauge("holders", "Granted claims.", func(s node.Status) float64 { return float64(s.Counts.Holders) }),
	newGauge("waiters", "Queued claims.", func(s node.Status) float64 { return float64(s.Counts.Waiters) }),
	newGauge("closing", "Ended claims whose old holder may not know it yet.", func(s node.Status) float64 { return float64(s.Counts.Closing) }),
	newGauge("queued_commands", "Commands that wait for a batch, on the leader.", func(s node.Status) float64 { return float64(s.Replica.Queued) }),
	newGauge("held_requests", "Keepalives and reads that wait for a quorum round, on the leader.", func(s node.Status) float64 { return float64(s.Replica.Held) }),
	newGauge("attached_sessions", "Sessions bound to a stream, on the leader.", func(s node.Status) float64 { return float64(s.Replica.Attached) }),
	newGauge("disk_busy_seconds", "Age of the write under way.", func(s node.Status) float64 { return s.DiskBusy.Seconds() }),
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// totals are the counters, one per kind of event.
var totals = map[machine.EventKind]*prometheus.Desc{
	machine.EventGranted:   total("grants", "Grants applied by this node since it started."),
	machine.EventQueued:    total("queued", "Claims that had to wait."),
	machine.EventReleased:  total("releases", "Grants given back."),
	machine.EventExpired:   total("expired", "Claims ended because their session's lease ran out."),
	machine.EventRevoked:   total("revoked", "Claims ended by an operator."),
	machine.EventCancelled: total("cancelled", "Claims cancelled."),
}

func total(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("lockstep_"+name+"_total", help, nil, nil)
}

// Describe sends what there is.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, g := range gauges {
		out <- g.desc
	}
	for _, desc := range totals {
		out <- desc
	}
}

// Collect reads the figures.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	st := c.node.Status()
	for _, g := range gauges {
		out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(st))
	}
	for kind, desc := range totals {
		out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(c.tally.byKind[kind].Load()))
	}
}
