package storage

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// A Recovered is what a group starts from.
type Recovered struct {
	// Found is false if the group was never bootstrapped here; everything else is zero then.
	Found     bool
	HardState *raftpb.HardState
	// Snapshot is where the state machine starts.
	Snapshot *raftpb.SnapshotMetadata
	// Empty says that the state at Snapshot is the empty machine. Otherwise OpenSnapshot returns
	// its content.
	Empty bool
	// Entries are those after Snapshot, without a gap.
	Entries []*raftpb.Entry
}

// Recover reads what was stored for a group and checks it. Snapshots are read completely, and the
// newest good one is used. Damage is refused with a [*RefusedError].
func (s *Store) Recover(group uint32) (Recovered, error) {
	st, b, err := s.readGroup(group)
	if err != nil || st == nil {
		return Recovered{}, err
	}
	entries, err := s.readEntries(group)
	if err != nil {
		return Recovered{}, err
	}
	if err := checkLog(st, b, entries); err != nil {
		return Recovered{}, s.refuse(ErrDamaged, fmt.Sprintf("log of group %d: %v", group, err), remedyDamaged, nil)
	}
	r := Recovered{Found: true}
	if err := s.chooseSnapshot(&r, group, b, entries); err != nil {
		return Recovered{}, err
	}
	for i, e := range entries {
		if e.GetIndex() > r.Snapshot.GetIndex() {
			r.Entries = entries[i:]
			break
		}
	}
	// Entries may be applied, and therefore be in a snapshot, before the commit index that covers
	// them is stored.
	r.HardState = &raftpb.HardState{
		Term:   proto.Uint64(st.term),
		Vote:   proto.Uint64(st.vote),
		Commit: proto.Uint64(max(st.commit, r.Snapshot.GetIndex())),
	}
	s.groups[group] = st
	s.setBase(group, b.index)
	s.prune(group)
	return r, nil
}

// LastEntry returns the index of the last durable entry of a group; zero: the group was never
// bootstrapped here.
func (s *Store) LastEntry(group uint32) (uint64, error) {
	st, _, err := s.readGroup(group)
	if err != nil || st == nil {
		return 0, err
	}
	return st.last, nil
}

// readGroup reads the two records of a group. Both are nil for a group that isn't here.
func (s *Store) readGroup(group uint32) (*groupState, *base, error) {
	damaged := func(what string, err error) error {
		return s.refuse(ErrDamaged, fmt.Sprintf("%s of group %d", what, group), remedyDamaged, err)
	}
	v, err := s.get(groupKey(group, kindState))
	if err != nil {
		return nil, nil, damaged("state record", err)
	}
	w, err := s.get(groupKey(group, kindBase))
	if err != nil {
		return nil, nil, damaged("base record", err)
	}
	if v == nil && w == nil {
		return nil, nil, nil
	}
	if v == nil || w == nil {
		return nil, nil, damaged("state or base record is missing: half", errors.New("one of two records found"))
	}
	st, b := new(groupState), new(base)
	if err := st.decode(v); err != nil {
		return nil, nil, damaged("state record", err)
	}
	if err := b.decode(w); err != nil {
		return nil, nil, damaged("base record", err)
	}
	if InstanceID(st.instance) != s.id.instance {
		return nil, nil, s.refuse(ErrForeign,
			fmt.Sprintf("the log was written by instance %s, the directory is of %s", InstanceID(st.instance), s.id.instance),
			"put back the log files that belong to this directory", nil)
	}
	return st, b, nil
}

// get returns nil for a missing key.
func (s *Store) get(key []byte) ([]byte, error) {
	v, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return append([]byte(nil), v...), closer.Close()
}

// readEntries reads all entries of a group. Their total is bounded by the distance of the
// snapshots.
func (s *Store) readEntries(group uint32) (entries []*raftpb.Entry, err error) {
	damaged := func(err error) error {
		return s.refuse(ErrDamaged, fmt.Sprintf("log of group %d cannot be read", group), remedyDamaged, err)
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: entryKey(group, 0), UpperBound: entriesEnd(group)})
	if err != nil {
		return nil, damaged(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, errors.Join(damaged(err), it.Close())
		}
		e, err := decodeEntry(entryIndex(it.Key()), v)
		if err != nil {
			return nil, errors.Join(damaged(err), it.Close())
		}
		entries = append(entries, e)
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return nil, damaged(err)
	}
	return entries, nil
}

// checkLog finds what can't be in a log that only Append has written.
func checkLog(st *groupState, b *base, entries []*raftpb.Entry) error {
	last := b.index
	if len(entries) > 0 {
		last = entries[len(entries)-1].GetIndex()
	}
	if last != st.last {
		return fmt.Errorf("ends at entry %d, but %d entries were written", last, st.last)
	}
	if st.commit > st.last {
		return fmt.Errorf("ends at entry %d, but %d entries are committed", st.last, st.commit)
	}
	term := uint64(0)
	for i, e := range entries {
		if want := entries[0].GetIndex() + uint64(i); e.GetIndex() != want {
			return fmt.Errorf("entry %d is missing", want)
		}
		if e.GetTerm() < term || e.GetTerm() > st.term {
			return fmt.Errorf("entry %d has term %d, between %d and %d are possible", e.GetIndex(), e.GetTerm(), term, st.term)
		}
		term = e.GetTerm()
	}
	return nil
}

// chooseSnapshot picks the newest good snapshot from which the log continues, or the empty machine.
// It removes useless files, and sets damaged ones aside if it can do without them.
func (s *Store) chooseSnapshot(r *Recovered, group uint32, b *base, entries []*raftpb.Entry) error {
	refs := s.snapshots(group)
	reason := fmt.Sprintf("no snapshot of group %d fits its log", group)
	var damaged []snapshotRef
	for i := len(refs) - 1; i >= 0; i-- {
		ref := refs[i]
		if !fits(ref, b, entries) {
			s.dropSnapshot(group, ref, "it doesn't fit the log")
			continue
		}
		meta, err := s.verifySnapshot(ref)
		if errors.Is(err, ErrNewer) {
			return s.refuse(ErrNewer, fmt.Sprintf("snapshot %s", ref.name()), "start the version that wrote it, or a newer one", err)
		}
		if err == nil {
			r.Snapshot = meta
			s.setAside(group, damaged)
			return nil
		}
		reason = fmt.Sprintf("snapshot %s is damaged (%v), and there is no older one", ref.name(), err)
		s.log.Error("snapshot damaged, trying an older one", "file", ref.name(), "err", err)
		damaged = append(damaged, ref)
	}
	if !b.empty || !reaches(entries, b.index) {
		return s.refuse(ErrDamaged, reason, remedyDamaged, nil)
	}
	r.Snapshot = &raftpb.SnapshotMetadata{Index: &b.index, Term: &b.term, ConfState: b.conf}
	r.Empty = true
	s.setAside(group, damaged)
	return nil
}

// fits reports whether a snapshot belongs to this log: it is its base, or the state after one of
// its entries. A snapshot that was received, but not adopted before a crash, is neither.
func fits(ref snapshotRef, b *base, entries []*raftpb.Entry) bool {
	if ref.index == b.index {
		return ref.term == b.term && !b.empty && reaches(entries, b.index)
	}
	if ref.index < b.index || len(entries) == 0 {
		return false
	}
	first := entries[0].GetIndex()
	i := ref.index - first // wraps below first
	return ref.index >= first && i < uint64(len(entries)) && entries[i].GetTerm() == ref.term
}

// reaches reports whether no entry between index and the log is missing.
func reaches(entries []*raftpb.Entry, index uint64) bool {
	return len(entries) == 0 || entries[0].GetIndex() <= index+1
}
