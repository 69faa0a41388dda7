package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"
)

// An Owner says whose a data directory is.
type Owner struct {
	ClusterID string
	NodeID    uint64
	Origin    string // the backup that it was made from, or empty
}

// ReadOwner reads who owns the directory, without opening or locking it; found is false if the
// directory is missing or was never used. What cannot be read is refused with a [*RefusedError].
func ReadOwner(fsys vfs.FS, dir string) (o Owner, found bool, err error) {
	s := &Store{dir: dir, fs: fsys}
	text, err := readFile(fsys, s.path(identityName), identityLimit)
	if err != nil {
		return o, false, s.refuse(ErrAccess, "IDENTITY cannot be read", "check its permissions", err)
	}
	if text == nil {
		return o, false, nil
	}
	id, err := decodeIdentity(text)
	if newer := (errNewerFormat{}); errors.As(err, &newer) {
		return o, false, s.refuse(ErrNewer, newer.Error(), "start the version that wrote it, or a newer one", nil)
	}
	if err != nil {
		return o, false, s.refuse(ErrDamaged, err.Error(), remedyDamaged, nil)
	}
	return Owner{ClusterID: id.cluster, NodeID: id.node, Origin: id.origin}, true, nil
}

// CheckVacant refuses a place for a new directory unless it is missing or an empty directory. It
// changes nothing.
func CheckVacant(fsys vfs.FS, dir string) error {
	s := &Store{dir: dir, fs: fsys}
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return s.refuse(ErrAccess, "cannot be read", "use a directory that does not exist or is empty", err)
	}
	for _, name := range names {
		if name != "lost+found" {
			return s.refuse(ErrForeign, fmt.Sprintf("is not empty: it contains %q", name), "use a directory that does not exist or is empty", nil)
		}
	}
	return nil
}

// Seed starts a group on this node with the state in content, at the position and with the members
// of meta. The group must be new here. A crash before Seed returns leaves a directory without the
// group.
func (s *Store) Seed(group uint32, meta *raftpb.SnapshotMetadata, content io.Reader) (err error) {
	defer rescue(&err)
	if s.groups[group] != nil {
		panic(fmt.Sprintf("storage: group %d seeded twice", group))
	}
	file, err := s.CreateSnapshot(group, meta)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, content); err != nil {
		file.Abort()
		return err
	}
	if err := file.Commit(); err != nil {
		return err
	}
	b := base{index: meta.GetIndex(), term: meta.GetTerm(), conf: meta.GetConfState()}
	return s.begin(group, &b)
}

// LatestSnapshot opens the newest snapshot of the log that includes the entry at index. It is
// checked while it is read, as with OpenSnapshot.
func (s *Store) LatestSnapshot(group uint32, index uint64) (*raftpb.SnapshotMetadata, io.ReadCloser, error) {
	refs := s.snapshots(group)
	for i := len(refs) - 1; i >= 0; i-- {
		if refs[i].received || refs[i].index < index {
			continue
		}
		r, meta, err := s.openSnapshot(refs[i])
		return meta, r, err
	}
	return nil, nil, fmt.Errorf("storage: no snapshot of group %d from entry %d on", group, index)
}
