package node

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/backup"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/server/storage"
)

// Extract writes a backup of the data directory of a node that is not running, for a cluster that
// has lost its quorum. The backup has the node's whole log, including entries not known to be
// committed: whatever was acknowledged anywhere with this node's help is among them. The directory
// is not changed, except for unfinished files that any start would remove too. Extract fails while
// a process uses the directory.
func Extract(dir string, w io.Writer, name, version string, logger *slog.Logger) (err error) {
	owner, found, err := storage.ReadOwner(vfs.Default, dir)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("node: %s is not the data directory of a node: it has no IDENTITY", dir)
	}
	store, err := storage.Open(storage.Config{Dir: dir, ClusterID: owner.ClusterID, NodeID: owner.NodeID, Logger: logger})
	if err != nil {
		return err
	}
	defer store.Close() // nothing was written that could be lost
	rec, err := store.Recover(group)
	if err != nil {
		return err
	}
	if !rec.Found {
		return ErrNoState
	}
	m, meta, err := replay(store, &rec)
	if err != nil {
		return err
	}
	cluster := m.Birth().String()
	if cluster == "" {
		cluster = owner.ClusterID
	}
	return backup.Write(w, header(cluster, name, version, meta), newStateReader(m))
}

// replay returns the state after the last entry of the log.
func replay(store *storage.Store, rec *storage.Recovered) (*machine.Machine, *raftpb.SnapshotMetadata, error) {
	m := machine.New()
	if !rec.Empty {
		var err error
		if m, err = loadState(store, rec.Snapshot); err != nil {
			return nil, nil, err
		}
	}
	index, term := rec.Snapshot.GetIndex(), max(rec.Snapshot.GetTerm(), rec.HardState.GetTerm())
	for _, e := range rec.Entries {
		index = e.GetIndex()
		if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 {
			continue
		}
		entry, err := command.DecodeEntry(e.GetData())
		if err != nil {
			return nil, nil, fmt.Errorf("node: entry %d: %w", index, err)
		}
		m.Apply(index, e.GetTerm(), &entry)
	}
	return m, &raftpb.SnapshotMetadata{Index: &index, Term: &term, ConfState: rec.Snapshot.GetConfState()}, nil
}
