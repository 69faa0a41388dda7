package server

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/service"
	"github.com/lockstep-dev/lockstep/server/transport"
)

// registry has the metrics of one node and nothing else.
func registry(n statusReader, t *tally, dir string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&collector{node: n, tally: t, dir: dir},
	)
	r.MustRegister(t.ports)
	r.MustRegister(answerMetrics(t.unread)...)
	r.MustRegister(t.histograms()...)
	r.MustRegister(auditMetrics(t.audit)...)
	return r
}

// A collector reads one Status for each scrape, so that its values are consistent.
type collector struct {
	node  statusReader
	tally *tally
	dir   string // the data directory; "": its file system is not examined
}

// A gauge is a value in the node's Status.
type gauge struct {
	desc  *prometheus.Desc
	value func(node.Status) float64
}

func newGauge(name, help string, value func(node.Status) float64) gauge {
	return gauge{prometheus.NewDesc("lockstep_"+name, help, nil, nil), value}
}

// ofGroup returns a gauge of a Raft group, of which there is only one.
func ofGroup(name, help string, value func(node.Status) float64) gauge {
	return gauge{prometheus.NewDesc("lockstep_"+name, help, nil, prometheus.Labels{"group": "1"}), value}
}

var gauges = []gauge{
	ofGroup("term", "Raft term.", func(s node.Status) float64 { return float64(s.Term) }),
	ofGroup("applied_index", "Index of the last applied log entry.", func(s node.Status) float64 { return float64(s.Applied) }),
	ofGroup("committed_index", "Index of the last committed log entry.", func(s node.Status) float64 { return float64(s.Commit) }),
	ofGroup("last_index", "Index of the last log entry, committed or not.", func(s node.Status) float64 { return float64(s.Replica.LastIndex) }),
	ofGroup("snapshot_index", "Index of the last durable snapshot.", func(s node.Status) float64 { return float64(s.Replica.Snapshot) }),
	ofGroup("is_leader", "1 if this node leads.", func(s node.Status) float64 { return truth(s.Role == node.Leader) }),
	ofGroup("serving", "1 if this node leads and serves.", func(s node.Status) float64 { return truth(s.Serving) }),
	ofGroup("has_leader", "1 if this node knows a leader.", func(s node.Status) float64 { return truth(s.Leader != 0) }),
	newGauge("sessions", "Live sessions.", func(s node.Status) float64 { return float64(s.Counts.Sessions) }),
	newGauge("names", "Names that are held or waited for.", func(s node.Status) float64 { return float64(s.Counts.Names) }),
	newGauge("holders", "Granted claims.", func(s node.Status) float64 { return float64(s.Counts.Holders) }),
	newGauge("waiters", "Queued claims.", func(s node.Status) float64 { return float64(s.Counts.Waiters) }),
	newGauge("closing", "Ended claims whose old holder may not know it yet.", func(s node.Status) float64 { return float64(s.Counts.Closing) }),
	newGauge("state_bytes", "Bytes of live and remembered sessions and claims, as counted against the cluster-wide limit.", func(s node.Status) float64 { return float64(s.Counts.Bytes) }),
	newGauge("oldest_held_seconds", "Time for which the longest-held lock has been held; 0 if no lock is held.", oldestHeld),
	newGauge("expired_unreaped", "Sessions whose lease has expired but whose end has not been applied yet, on the leader.", func(s node.Status) float64 { return float64(s.Replica.Expiring) }),
	newGauge("queued_commands", "Commands waiting for a batch, on the leader.", func(s node.Status) float64 { return float64(s.Replica.Queued) }),
	newGauge("held_requests", "Keepalives and reads waiting for a quorum round, on the leader.", func(s node.Status) float64 { return float64(s.Replica.Held) }),
	newGauge("attached_sessions", "Sessions bound to a stream, on the leader.", func(s node.Status) float64 { return float64(s.Replica.Attached) }),
	newGauge("streams", "Client streams and calls in progress.", func(s node.Status) float64 { return float64(s.Streams) }),
	newGauge("grants_held", "1 while no locks are granted: a restored cluster is waiting, the wall clock is wrong, or the tokens are exhausted.", func(s node.Status) float64 { return truth(s.Replica.GrantsHeld != "") }),
	newGauge("grants_held_seconds", "Time until locks are granted again: what remains on the leader, an upper bound elsewhere; 0 if unknown.", func(s node.Status) float64 { return s.Replica.GrantsHeldFor.Seconds() }),
	newGauge("disk_busy_seconds", "Age of the write in progress.", func(s node.Status) float64 { return s.DiskBusy.Seconds() }),
}

func oldestHeld(s node.Status) float64 {
	if s.Counts.Oldest == 0 {
		return 0
	}
	return seconds(s.Counts.Oldest, command.WallMillis(max(0, time.Now().UnixMilli())))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// totals are the counters, one per kind of event.
var totals = map[command.EventKind]*prometheus.Desc{
	command.EventGranted:   total("grants", "Grants applied by this node since it started."),
	command.EventQueued:    total("queued", "Claims that had to wait."),
	command.EventReleased:  total("releases", "Grants released."),
	command.EventExpired:   total("expired", "Claims ended because the lease of their session expired."),
	command.EventRevoked:   total("revoked", "Claims ended by an operator."),
	command.EventCancelled: total("cancelled", "Claims cancelled."),
}

func total(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("lockstep_"+name+"_total", help, nil, nil)
}

func labelled(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("lockstep_"+name, help, labels, nil)
}

// What Collect reports in addition to the gauges and totals.
var (
	failedTries     = total("failed_tries", "Claims that were not granted because the lock was busy or the wait timed out, on the leader.")
	leaderChanges   = total("leader_changes", "Number of leader changes seen by this node.")
	descriptorWaits = total("descriptor_waits", "Number of times that a file could not be opened immediately because no file descriptor was left.")
	lostGrants      = labelled("lost_grants_total", "Grants that ended without a release, by reason.", "reason")
	snapshots       = labelled("snapshots_total", "Snapshots since the node started, by outcome.", "what")
	peerLag         = labelled("peer_lag_entries", "Log entries that are not durable on a peer yet, on the leader.", "peer")
	peerStuck       = labelled("peer_stuck_seconds", "Time for which a peer that lacks committed log entries has received none of them, on the leader.", "peer")
	peerUp          = labelled("peer_reachable", "1 if the peer is reachable.", "peer")
	memberInfo      = labelled("member_info", "1 for each member, with the zone that it reports and whether it has a vote.", "member", "zone", "votes")
	peerRefusals    = labelled("peer_handshakes_failed_total", "Failed handshakes with peers, by reason.", "reason")
	peerDropped     = total("peer_messages_dropped", "Messages of peers dropped because of implausible terms or indexes.")
	diskFree        = labelled("disk_free_bytes", "Free space in the file system of the data directory.")
	diskSize        = labelled("disk_size_bytes", "Size of the file system of the data directory.")
)

// Describe sends the descriptions.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, g := range gauges {
		out <- g.desc
	}
	for _, desc := range totals {
		out <- desc
	}
	for _, desc := range []*prometheus.Desc{failedTries, leaderChanges, descriptorWaits, lostGrants, snapshots, peerRefusals, peerDropped, peerLag, peerStuck, peerUp, memberInfo, diskFree, diskSize} {
		out <- desc
	}
}

// Collect reads the values.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	st := c.node.Status()
	send := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	}
	for _, g := range gauges {
		send(g.desc, prometheus.GaugeValue, g.value(st))
	}
	for kind, desc := range totals {
		send(desc, prometheus.CounterValue, float64(c.tally.byKind[kind].Load()))
	}
	for _, kind := range []command.EventKind{command.EventExpired, command.EventRevoked} {
		send(lostGrants, prometheus.CounterValue, float64(c.tally.lost[kind].Load()), kind.String())
	}
	send(failedTries, prometheus.CounterValue, float64(c.tally.failed.Load()))
	send(descriptorWaits, prometheus.CounterValue, float64(st.DescriptorWaits))
	send(leaderChanges, prometheus.CounterValue, float64(st.LeaderChanges))
	for what, n := range map[string]uint64{
		"written": st.Snapshots.Written, "sent": st.Snapshots.Sent, "received": st.Snapshots.Received, "failed": st.Snapshots.Failed,
	} {
		send(snapshots, prometheus.CounterValue, float64(n), what)
	}
	for kind, n := range st.Refusals {
		send(peerRefusals, prometheus.CounterValue, float64(n), transport.Refusal(kind).String())
	}
	send(peerDropped, prometheus.CounterValue, float64(st.Disproportionate))
	for _, m := range st.Members {
		send(memberInfo, prometheus.GaugeValue, 1, m.Name, m.Zone, strconv.FormatBool(!m.Learner))
		if m.Self {
			continue
		}
		send(peerUp, prometheus.GaugeValue, truth(m.Reachable), m.Name)
		if st.Role == node.Leader {
			send(peerLag, prometheus.GaugeValue, float64(st.Replica.LastIndex-min(m.Applied, st.Replica.LastIndex)), m.Name)
			send(peerStuck, prometheus.GaugeValue, m.Stuck.Seconds(), m.Name)
		}
	}
	if free, size, ok := space(c.dir); ok {
		send(diskFree, prometheus.GaugeValue, float64(free))
		send(diskSize, prometheus.GaugeValue, float64(size))
	}
}

// answerMetrics are about what clients have not taken yet, as reported by [service.Service.Unread];
// nil: there is no service.
func answerMetrics(unread func() (bytes int64, ended uint64, watches int64)) []prometheus.Collector {
	if unread == nil {
		unread = func() (int64, uint64, int64) { return 0, 0, 0 }
	}
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lockstep_unread_bytes", Help: "Bytes of responses that clients have not read yet.",
		}, func() float64 { bytes, _, _ := unread(); return float64(bytes) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "lockstep_untaken_total", Help: "Connections closed because the client did not read a response.",
		}, func() float64 { _, ended, _ := unread(); return float64(ended) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lockstep_watches", Help: "Client watches in progress.",
		}, func() float64 { _, _, watches := unread(); return float64(watches) }),
	}
}

// A portCollector reports the values of the ports, by name.
type portCollector map[string]*service.Port

// What it reports.
var (
	connections        = labelled("connections", "Open connections, by port.", "port")
	connectionsLimit   = labelled("connections_limit", "Maximum number of open connections, by port.", "port")
	connectionsRefused = labelled("connections_refused_total", "Connections closed immediately or delayed, by port and by the limit reached: all connections, those of one address, or file descriptors.", "port", "bound")
	connectionsClosed  = labelled("connections_closed_idle_total", "Idle connections closed to make room, by port.", "port")
)

// Describe sends the descriptions.
func (portCollector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{connections, connectionsLimit, connectionsRefused, connectionsClosed} {
		out <- desc
	}
}

// Collect reads the values.
func (ports portCollector) Collect(out chan<- prometheus.Metric) {
	send := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	}
	for name, p := range ports {
		c := p.Counts()
		send(connections, prometheus.GaugeValue, float64(c.Open), name)
		send(connectionsLimit, prometheus.GaugeValue, float64(c.Limit), name)
		send(connectionsClosed, prometheus.CounterValue, float64(c.ClosedIdle), name)
		send(connectionsRefused, prometheus.CounterValue, float64(c.Full), name, "all")
		send(connectionsRefused, prometheus.CounterValue, float64(c.PerAddress), name, "address")
		send(connectionsRefused, prometheus.CounterValue, float64(c.NoDescriptor), name, "descriptors")
	}
}
