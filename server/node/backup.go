package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/backup"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/server/replica"
	"github.com/lockstep-dev/lockstep/server/storage"
)

// ErrNoState means that the node has no state to save yet.
var ErrNoState = errors.New("node: this node has no state to save yet: wait until there is a leader")

const (
	// backupPoll is how often Backup checks for its snapshot.
	backupPoll = 20 * time.Millisecond
	// backupAsk is when a snapshot that has not appeared is requested again: writing it may have
	// failed.
	backupAsk = 15 * time.Second
)

// Backup writes a backup of everything that this node has applied, while it goes on serving. It
// takes a regular snapshot of the node, at the same gentle pace, and copies that. It needs no
// leader. It returns ErrNoState, ErrStopped, or the error of ctx or w.
func (n *Node) Backup(ctx context.Context, w io.Writer, version string) error {
	index, err := n.settled(ctx)
	if err != nil {
		return err
	}
	if err := n.untilSnapshot(ctx, index); err != nil {
		return err
	}
	meta, state, err := n.store.LatestSnapshot(group, index)
	if err != nil {
		return errors.Join(ErrNoState, err)
	}
	h := header(n.clusterID(), n.cfg.Name, version, meta)
	return errors.Join(backup.Write(w, h, state), state.Close())
}

func header(cluster, name, version string, meta *raftpb.SnapshotMetadata) backup.Header {
	return backup.Header{
		ClusterID: cluster, Node: name, Version: version, Index: meta.GetIndex(), Term: meta.GetTerm(),
		Voters: meta.GetConfState().GetVoters(), Learners: meta.GetConfState().GetLearners(),
		TakenAt: command.WallMillis(time.Now().UnixMilli()),
	}
}

// settled returns the applied index once the published status is newer than this call.
func (n *Node) settled(ctx context.Context) (index uint64, err error) {
	began := int64(n.Now())
	err = n.poll(ctx, func() bool {
		st := n.status.Load()
		if st == nil || n.published.Load() <= began {
			return false
		}
		index = st.Applied
		return true
	})
	return index, err
}

// untilSnapshot waits for a durable snapshot that includes the entry at index.
func (n *Node) untilSnapshot(ctx context.Context, index uint64) error {
	var asked time.Time
	return n.poll(ctx, func() bool {
		if n.status.Load().Snapshot >= index {
			return true
		}
		if time.Since(asked) > backupAsk {
			asked = time.Now()
			n.inbox.push(replica.SnapshotWanted{Index: index})
		}
		return false
	})
}

// poll waits until done.
func (n *Node) poll(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(backupPoll)
	defer tick.Stop()
	for !done() {
		if n.inbox.stopped() {
			return ErrStopped
		}
		select {
		case <-ctx.Done():
			if n.status.Load() == nil {
				return ErrNoState
			}
			return fmt.Errorf("node: backup: %w", ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// OriginOf returns what a directory that is made from a backup records: the same for each node of
// one restore, and different for another file, other members or another wait, so that nodes with
// different states never meet.
func OriginOf(b *backup.File, wait command.Millis) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "lockstep origin\x00%s\x00%d", b.Sum, wait))
	return hex.EncodeToString(sum[:16])
}

// RestoredClusterID returns the id of a cluster that starts from a backup with members.
func RestoredClusterID(origin string, members map[string]string) string {
	if origin == "" {
		return ClusterID(members)
	}
	sum := sha256.Sum256([]byte("lockstep restored cluster\x00" + origin + "\x00" + ClusterID(members)))
	return hex.EncodeToString(sum[:16])
}

// A Restore makes a node of a new cluster that begins with the state of a backup.
type Restore struct {
	Name    string            // of the node, one of Members
	DataDir string            // missing or empty
	Members map[string]string // of the new cluster: name -> peer address
	// Wait is the minimum time during which nothing is granted; zero skips the wait. It must be the
	// same on each node of the cluster.
	Wait command.Millis
}

// Run makes the directory. Everything is checked before the directory is touched. The machine of
// the backup must not be used afterwards. Run returns the id of the new cluster.
func (r Restore) Run(b *backup.File) (cluster string, err error) {
	if r.Members[r.Name] == "" {
		return "", fmt.Errorf("node: %q is not in the initial cluster", r.Name)
	}
	if err := storage.CheckVacant(vfs.Default, r.DataDir); err != nil {
		return "", err
	}
	return r.make(b, false)
}

// make makes the directory.
func (r Restore) make(b *backup.File, replacing bool) (cluster string, err error) {
	origin := OriginOf(b, r.Wait)
	cluster = RestoredClusterID(origin, r.Members)
	meta := restoredMeta(b, cluster, r.Members)
	b.Machine.Renew(b.TakenAt, r.Wait)
	store, err := storage.Open(storage.Config{
		Dir: r.DataDir, ClusterID: cluster, NodeID: ID(cluster, r.Name), Origin: origin, Replacing: replacing,
	})
	if err != nil {
		return "", err
	}
	return cluster, errors.Join(store.Seed(group, meta, newStateReader(b.Machine)), store.Close())
}

// restoredMeta returns the position at which every node of the new cluster starts: after everything
// in the backup.
func restoredMeta(b *backup.File, cluster string, members map[string]string) *raftpb.SnapshotMetadata {
	index, term := b.Index+1, b.Term+1
	return &raftpb.SnapshotMetadata{Index: &index, Term: &term, ConfState: voters(cluster, members)}
}

// A stateReader reads the snapshot of a machine.
type stateReader struct {
	capture *machine.Capture
	rest    []byte
	last    bool
}

func newStateReader(m *machine.Machine) *stateReader { return &stateReader{capture: m.StartCapture()} }

func (r *stateReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.last {
			return 0, io.EOF
		}
		r.rest, r.last = r.capture.Next()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
