package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"

	"go.etcd.io/raft/v3/raftpb"
)

// keptSnapshots is how many snapshots of a group are kept: one to start from, and one in case that
// file turns out to be damaged.
const keptSnapshots = 2

// A snapshotRef names a snapshot file.
type snapshotRef struct {
	group       uint32
	index, term uint64
	// received: from another node, and it has not replaced the log yet
	received bool
}

func (r snapshotRef) name() string {
	return fmt.Sprintf("%08x-%016x-%016x.snap", r.group, r.index, r.term)
}

func (r snapshotRef) same(index, term uint64) bool { return r.index == index && r.term == term }

func parseSnapshotName(name string) (r snapshotRef, ok bool) {
	n, err := fmt.Sscanf(name, "%08x-%016x-%016x.snap", &r.group, &r.index, &r.term)
	return r, err == nil && n == 3 && r.name() == name
}

func (s *Store) snapshotPath(name string) string {
	return s.fs.PathJoin(s.path(snapshotsName), name)
}

// scanSnapshots lists the existing files and removes unfinished ones.
func (s *Store) scanSnapshots() error {
	names, err := s.fs.List(s.path(snapshotsName))
	if errors.Is(err, fs.ErrNotExist) {
		return s.refuse(ErrDamaged, "the directory snapshots is missing", remedyDamaged, nil)
	}
	if err != nil {
		return s.refuse(ErrAccess, "snapshots cannot be listed", "check the permissions", err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, tmpSuffix) {
			if err := s.fs.Remove(s.snapshotPath(name)); err != nil {
				return s.refuse(ErrAccess, "an unfinished snapshot cannot be removed", "check the permissions", err)
			}
			s.log.Info("removed an unfinished snapshot", "file", name)
			continue
		}
		ref, ok := parseSnapshotName(name)
		if !ok {
			s.log.Warn("unknown file among the snapshots", "file", name)
			continue
		}
		s.keep(ref)
	}
	return nil
}

// keep adds a snapshot to the list, in index order.
func (s *Store) keep(ref snapshotRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refs := slices.DeleteFunc(s.mu.kept[ref.group], func(r snapshotRef) bool { return r.same(ref.index, ref.term) })
	refs = append(refs, ref)
	slices.SortFunc(refs, func(a, b snapshotRef) int {
		return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.term, b.term))
	})
	s.mu.kept[ref.group] = refs
}

func (s *Store) snapshots(group uint32) []snapshotRef {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.kept[group])
}

func (s *Store) hasSnapshot(group uint32, index, term uint64) bool {
	return slices.ContainsFunc(s.snapshots(group), func(r snapshotRef) bool { return r.same(index, term) })
}

func (s *Store) setBase(group uint32, index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.base[group] = index
}

// adopt records that the log now starts at a received snapshot. Those before it are useless now.
func (s *Store) adopt(group uint32, meta *raftpb.SnapshotMetadata) {
	s.setBase(group, meta.GetIndex())
	s.keep(snapshotRef{group: group, index: meta.GetIndex(), term: meta.GetTerm()})
	s.prune(group)
}

// prune removes what is useless: files from before the base, all but the last two of the log, and
// all but the last two that were received and not adopted. Before Recover it is not known which
// files belong to the log, and all of them stay.
func (s *Store) prune(group uint32) {
	s.mu.Lock()
	if _, known := s.mu.base[group]; !known {
		s.mu.Unlock()
		return
	}
	var own, received int
	var drop []snapshotRef
	refs := s.mu.kept[group]
	for i := len(refs) - 1; i >= 0; i-- {
		ref, n := refs[i], &own
		if ref.received {
			n = &received
		}
		if *n++; *n > keptSnapshots || ref.index < s.mu.base[group] {
			drop = append(drop, ref)
		}
	}
	s.mu.Unlock()
	for _, ref := range drop {
		s.dropSnapshot(group, ref, "there is a newer one")
	}
}

// dropSnapshot removes a file. It does no harm if the file reappears after a power cut.
func (s *Store) dropSnapshot(group uint32, ref snapshotRef, why string) {
	s.mu.Lock()
	s.mu.kept[group] = slices.DeleteFunc(s.mu.kept[group], func(r snapshotRef) bool { return r.same(ref.index, ref.term) })
	s.mu.Unlock()
	if err := s.fs.Remove(s.snapshotPath(ref.name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("snapshot not removed", "file", ref.name(), "err", err)
		return
	}
	s.log.Debug("removed a snapshot", "file", ref.name(), "why", why)
}

// damagedSuffix marks a file that was set aside.
const damagedSuffix = ".damaged"

// setAside removes damaged snapshots from the kept ones, so that good ones are not dropped because
// of them. The files stay, under another name, for analysis.
func (s *Store) setAside(group uint32, damaged []snapshotRef) {
	for _, ref := range damaged {
		s.mu.Lock()
		s.mu.kept[group] = slices.DeleteFunc(s.mu.kept[group], func(r snapshotRef) bool { return r == ref })
		s.mu.Unlock()
		name := s.snapshotPath(ref.name())
		if err := s.fs.Rename(name, name+damagedSuffix); err != nil {
			s.log.Warn("damaged snapshot not set aside", "file", ref.name(), "err", err)
		}
	}
}

// oldestNeeded returns the lowest entry that must be kept: the one at the older of the two
// snapshots (its term shows that the file belongs to this log), or all entries if there are not two
// yet.
func (s *Store) oldestNeeded(group uint32) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	lowest, n := uint64(math.MaxUint64), 0
	for _, ref := range s.mu.kept[group] {
		if !ref.received {
			lowest, n = min(lowest, ref.index), n+1
		}
	}
	if n < keptSnapshots {
		return s.mu.base[group] + 1
	}
	return lowest
}

// CreateSnapshot starts a snapshot file of this node's own state at meta. No file has its final
// name before Commit.
func (s *Store) CreateSnapshot(group uint32, meta *raftpb.SnapshotMetadata) (*SnapshotWriter, error) {
	return s.newWriter(snapshotRef{group: group, index: meta.GetIndex(), term: meta.GetTerm()}, meta)
}

// ReceiveSnapshot starts the file of a snapshot sent by another node. After Commit, it waits for an
// Append with that snapshot.
func (s *Store) ReceiveSnapshot(group uint32, meta *raftpb.SnapshotMetadata) (*SnapshotWriter, error) {
	return s.newWriter(snapshotRef{group: group, index: meta.GetIndex(), term: meta.GetTerm(), received: true}, meta)
}

// OpenSnapshot opens the content of a snapshot. Every byte is checked before it is returned, and
// io.EOF comes only after a check that nothing is missing.
func (s *Store) OpenSnapshot(group uint32, meta *raftpb.SnapshotMetadata) (io.ReadCloser, error) {
	ref := snapshotRef{group: group, index: meta.GetIndex(), term: meta.GetTerm()}
	r, _, err := s.openSnapshot(ref)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// verifySnapshot reads a file to its end.
func (s *Store) verifySnapshot(ref snapshotRef) (*raftpb.SnapshotMetadata, error) {
	r, meta, err := s.openSnapshot(ref)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, r)
	return meta, errors.Join(err, r.Close())
}
