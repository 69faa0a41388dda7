package server

import (
	"context"
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-dev/lockstep/server/audit"
	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/server/node"
)

// newAudit makes the audit log, or returns nil if none is configured. It calls n for the node only
// once the node runs.
func newAudit(cfg *Config, n func() *node.Node) (*audit.Log, error) {
	if cfg.AuditLog == "" {
		return nil, nil
	}
	l, err := audit.New(audit.Config{
		Path: cfg.AuditLog, FileBytes: cfg.AuditLogBytes, Files: cfg.AuditLogFiles,
		Node: cfg.Name, Logger: cfg.Logger,
		Peers: func() []uint64 { return n().AuditPeers() },
		Ask: func(ctx context.Context, peer, from, to uint64) (io.ReadCloser, error) {
			return n().AskAudit(ctx, peer, from, to)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return l, nil
}

func opener(l *audit.Log, cluster func() string) func(string) error {
	if l == nil {
		return nil
	}
	return func(instance string) error { return l.Open(cluster(), instance) }
}

func loader(l *audit.Log) func(*machine.Machine) {
	if l == nil {
		return nil
	}
	return func(m *machine.Machine) { l.Loaded(m.Past()) }
}

func answerer(l *audit.Log) func(from, to uint64) (io.ReadCloser, error) {
	if l == nil {
		return nil
	}
	return l.Answer
}

// auditMetrics are the metrics of an audit log; without one they are zero.
func auditMetrics(l *audit.Log) []prometheus.Collector {
	status := func() audit.Status {
		if l == nil {
			return audit.Status{}
		}
		return l.Status()
	}
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lockstep_audit_last_event", Help: "Number of the last event in the audit log."},
			func() float64 { return float64(status().Last) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "lockstep_audit_missing_events_total", Help: "Events recorded as missing in the audit log."},
			func() float64 { return float64(status().Lost) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "lockstep_audit_fetched_events_total", Help: "Missing audit log events fetched from a peer."},
			func() float64 { return float64(status().Fetched) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lockstep_audit_wanted_events", Help: "Missing audit log events being requested from peers."},
			func() float64 { return float64(status().Wanted) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "lockstep_audit_errors_total", Help: "Failed writes of the audit log."},
			func() float64 { return float64(status().Errors) }),
	}
}
