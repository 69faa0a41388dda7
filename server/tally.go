package server

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/audit"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/protocol"
	"github.com/lockstep-dev/lockstep/server/replica"
)

// maxTimedWaiters bounds the waiters whose time in the queue is measured, some 8 MB. Waiters beyond
// it are granted unmeasured.
const maxTimedWaiters = 131_072

// A tally counts what this node applied and answered since it started. Its methods are called on
// the node's loop, except synced, which is called on the disk's goroutine.
type tally struct {
	byKind  [command.EventCancelled + 1]atomic.Uint64
	lost    [command.EventCancelled + 1]atomic.Uint64 // of byKind, those that had been granted
	failed  atomic.Uint64                             // busy tries, and waits that ran out
	batches prometheus.Histogram                      // commands per entry
	grants  prometheus.Histogram                      // from request to answer
	waits   prometheus.Histogram                      // from queue to grant
	syncs   prometheus.Histogram
	refused *prometheus.CounterVec // by reason

	audit  *audit.Log                                        // nil: there is no audit log
	unread func() (bytes int64, ended uint64, watches int64) // of the service
	ports  portCollector

	waiting map[command.ClaimID]command.WallMillis // since when; used only by the loop
}

// latencies are the buckets of a histogram of times: 0.25 ms, doubling up to some 16 s.
var latencies = prometheus.ExponentialBuckets(0.00025, 2, 17)

func newTally() *tally {
	return &tally{
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "lockstep_batch_commands",
			Help:    "Commands per applied log entry.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10), // 1 to 512, the largest batch
		}),
		grants: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "lockstep_grant_seconds",
			Help:    "Time from receiving a request to granting it, for requests that did not have to wait, on the leader.",
			Buckets: latencies,
		}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "lockstep_wait_seconds",
			Help:    "Time that granted claims spent in the queue, by the wall clocks of the leaders.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 12), // 1 ms to 70 minutes
		}),
		syncs: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "lockstep_sync_seconds",
			Help:    "Duration of a synced write to the log.",
			Buckets: latencies,
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lockstep_rejected_requests_total",
			Help: "Requests rejected by this node, by reason.",
		}, []string{"reason"}),
		waiting: make(map[command.ClaimID]command.WallMillis),
	}
}

// applied records applied entries.
func (t *tally) applied(entries []replica.Applied) {
	for i := range entries {
		if e := entries[i].Entry; e != nil {
			t.batches.Observe(float64(len(e.Commands)))
		}
	}
}

// count records history events.
func (t *tally) count(events []command.Event) {
	if t.audit != nil {
		t.audit.Events(events)
	}
	for i := range events {
		e := &events[i]
		t.byKind[e.Kind].Add(1)
		switch e.Kind {
		case command.EventQueued:
			if len(t.waiting) < maxTimedWaiters {
				t.waiting[e.Claim] = e.Wall
			}
		case command.EventGranted:
			t.waited(e)
		case command.EventExpired, command.EventRevoked:
			if e.Token != 0 {
				t.lost[e.Kind].Add(1)
			}
			delete(t.waiting, e.Claim)
		case command.EventCancelled:
			delete(t.waiting, e.Claim)
		}
	}
}

func (t *tally) waited(e *command.Event) {
	if len(t.waiting) == 0 {
		return
	}
	if since, ok := t.waiting[e.Claim]; ok {
		delete(t.waiting, e.Claim)
		t.waits.Observe(seconds(since, e.Wall))
	}
}

// seconds returns the time between two wall-clock readings; the clock may have been set back.
func seconds(from, to command.WallMillis) float64 {
	if to < from {
		return 0
	}
	return float64(to-from) / 1000
}

// replied records answers that are about to go out.
func (t *tally) replied(replies []lead.Reply, now lead.Time) {
	for i := range replies {
		switch a := replies[i].Answer.(type) {
		case lead.Claimed:
			t.claimed(&replies[i], a.Claim.State, now)
		case lead.Changed:
			if a.Claim.State == command.WaitEnded {
				t.failed.Add(1)
			}
		case lead.Refused:
			t.refused.WithLabelValues(protocol.ReasonText(protocol.FromRefused(a).GetReason())).Inc()
		}
	}
}

func (t *tally) claimed(r *lead.Reply, state command.State, now lead.Time) {
	switch {
	case r.Received == 0:
	case state == command.Granted:
		t.grants.Observe(time.Duration(now - r.Received).Seconds())
	case state == command.Busy:
		t.failed.Add(1)
	}
}

// refusedBefore records a request that was refused before it reached the node. It may be called
// from any goroutine.
func (t *tally) refusedBefore(why pb.Reason) {
	t.refused.WithLabelValues(protocol.ReasonText(why)).Inc()
}

// synced records a synced write of the log.
func (t *tally) synced(took time.Duration) { t.syncs.Observe(took.Seconds()) }

// histograms returns the collectors that a registry takes as they are.
func (t *tally) histograms() []prometheus.Collector {
	return []prometheus.Collector{t.batches, t.grants, t.waits, t.syncs, t.refused}
}
