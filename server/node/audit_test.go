package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-dev/lockstep/server/audit"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// A trail is the audit log of a node from its start to its stop.
type trail struct {
	*audit.Log
	path  string
	node  *Node
	ready chan struct{} // closed when node is there
	stop  func()
}

// trails has the audit logs of a cluster, by node name.
type trails map[string]*trail

// add gives its log to a node that is about to start.
func (ts trails) add(t testing.TB, cfg *Config) {
	tr := &trail{ready: make(chan struct{}), path: filepath.Join(filepath.Dir(cfg.DataDir), cfg.Name+".audit")}
	var err error
	tr.Log, err = audit.New(audit.Config{
		Path: tr.path, Node: cfg.Name, FileBytes: audit.MinFileBytes, Files: 100, Logger: cfg.Logger,
		Peers: func() []uint64 { <-tr.ready; return tr.node.AuditPeers() },
		Ask: func(ctx context.Context, peer, from, to uint64) (io.ReadCloser, error) {
			return tr.node.AskAudit(ctx, peer, from, to)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	cluster := ClusterID(cfg.Members)
	cfg.Opened = func(instance string) error { return tr.Open(cluster, instance) }
	cfg.Events, cfg.Audit = tr.Events, tr.Answer
	cfg.Loaded = func(m *machine.Machine) { tr.Loaded(m.Past()) }
	ts[cfg.Name] = tr
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- tr.Run(ctx) }()
	tr.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// started gives a log its node.
func (ts trails) started(c *cluster, name string) {
	ts[name].node = c.nodes[name].Node
	close(ts[name].ready)
}

// lines returns the lines of all files of a log without the headers, oldest first. It stops the
// log, which may be about to rename its files.
func (tr *trail) lines(t testing.TB) []byte {
	tr.stop()
	var all []byte
	for i := 100; i >= 0; i-- {
		name := fmt.Sprintf("%s.%d", tr.path, i)
		if i == 0 {
			name = tr.path
		}
		b, err := os.ReadFile(name)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		_, rest, _ := bytes.Cut(b, []byte("\n"))
		all = append(all, rest...)
	}
	return all
}

// end returns nil when all logs end with the event of the number last and want no earlier one.
// Ending with the same event would not be enough: a later one may still be on its way to all of
// them.
func (ts trails) end(last uint64) error {
	for name, tr := range ts {
		if st := tr.Status(); st.Last != last || st.Wanted != 0 {
			return fmt.Errorf("the log of %s ends with event %d of %d and wants %d", name, st.Last, last, st.Wanted)
		}
	}
	return nil
}

func TestTheAuditLogIsCompleteAfterASnapshotWhoseHistoryIsTooShort(t *testing.T) {
	ts := trails{}
	c := newCluster(t, 3, func(cfg *Config) {
		smallSnapshots(cfg)
		cfg.Limits = command.DefaultLimits()
		cfg.Limits.HistoryBytes, cfg.Limits.AbnormalBytes = 64<<10, 64<<10
		ts.add(t, cfg)
	})
	for name := range c.nodes {
		ts.started(c, name)
	}
	t.Cleanup(func() { // before the nodes are stopped
		for _, tr := range ts {
			tr.stop()
		}
	})
	leader := c.leader()
	cl := c.connect(leader)
	cl.open()
	seq := uint64(0)
	work := func(n int) {
		for range n {
			seq++
			cl.acquire(seq, fmt.Sprintf("jobs/%d-%s", seq, strings.Repeat("x", 300)))
		}
	}
	away := "n1"
	if leader.cfg.Name == away {
		away = "n2"
	}
	work(10)
	c.stop(away)
	ts[away].stop()
	work(600) // some 200 KiB
	c.eventually("the log the node needs is gone", func() error {
		if s := leader.Status(); s.Replica.Snapshot < s.Commit-100 {
			return fmt.Errorf("snapshot at %d of %d", s.Replica.Snapshot, s.Commit)
		}
		return nil
	})
	c.start(away)
	ts.started(c, away)
	work(200)
	// Each acquire was one event.
	c.eventually("the logs have the last event", func() error { return ts.end(seq) })
	if st := ts[away].Status(); st.Fetched < 300 || st.Lost != 0 {
		t.Errorf("%s: %+v", away, st)
	}
	want := ts[leader.cfg.Name].lines(t)
	if n := bytes.Count(want, []byte(`{"number":`)); n != int(seq) {
		t.Errorf("%d lines of %d events", n, seq)
	}
	for name, tr := range ts {
		if !bytes.Equal(tr.lines(t), want) {
			t.Errorf("the lines of %s are not those of the leader", name)
		}
	}
}

func TestAPeerWithoutAnAuditLogSaysSo(t *testing.T) {
	c := newCluster(t, 2, nil)
	leader := c.leader()
	peers := leader.AuditPeers()
	if len(peers) != 1 {
		t.Fatalf("peers: %x", peers)
	}
	if _, err := leader.AskAudit(t.Context(), peers[0], 1, 5); !errors.Is(err, audit.ErrNoLog) {
		t.Errorf("asked a node without an audit log: %v", err)
	}
}

func TestTheLeaderIsAskedLast(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader().Status().ID
	for name, n := range c.nodes {
		c.eventually(name+" knows the leader", func() error { return want(n.Status().Leader, leader) })
		peers := n.AuditPeers()
		if len(peers) != 2 || n.Status().ID != leader && peers[1] != leader {
			t.Errorf("%s asks %x, the leader is %x", name, peers, leader)
		}
	}
}
