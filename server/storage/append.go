package storage

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"
)

// Bootstrap starts a group on this node with the state that all first members start with: an empty
// machine after one entry of term 1 that nobody stores, and the given members. The group must be
// new here.
func (s *Store) Bootstrap(group uint32, conf *raftpb.ConfState) (err error) {
	defer rescue(&err)
	if s.groups[group] != nil {
		panic(fmt.Sprintf("storage: group %d bootstrapped twice", group))
	}
	return s.begin(group, &base{index: 1, term: 1, conf: conf, empty: true})
}

// begin records that the log of a new group starts at b.
func (s *Store) begin(group uint32, b *base) error {
	st := &groupState{instance: s.id.instance, term: b.term, commit: b.index, last: b.index}
	batch := s.db.NewBatch()
	if err := putBase(batch, group, b); err != nil {
		return err
	}
	put(batch, groupKey(group, kindState), st.append(nil))
	if err := s.commit(batch, true); err != nil {
		return err
	}
	s.groups[group] = st
	s.setBase(group, b.index)
	return nil
}

// Append makes everything in the MsgStorageAppend messages durable, in their order, with one write
// and at most one sync. Their responses may be sent after it has returned nil. Any error is final:
// the store refuses everything that follows, and the process must exit. When there is no space for
// a new write-ahead log, Append does not return at all; Failed reports that.
//
// A message with a snapshot replaces the whole log; its file must have been received before.
func (s *Store) Append(group uint32, msgs []*raftpb.Message) (err error) {
	if err := s.Err(); err != nil {
		return err
	}
	defer rescue(&err)
	st := s.groups[group]
	if st == nil {
		panic(fmt.Sprintf("storage: append to group %d, which was not recovered", group))
	}
	next := *st
	batch := s.db.NewBatch()
	sync := false
	var adopted *raftpb.SnapshotMetadata
	for _, m := range msgs {
		if meta := m.GetSnapshot().GetMetadata(); meta.GetIndex() != 0 {
			if err := s.replaceLog(batch, group, meta, &next); err != nil {
				s.fail(err)
				return err
			}
			adopted, sync = meta, true
		}
		if len(m.GetEntries()) > 0 {
			putEntries(batch, group, m.GetEntries(), &next)
			sync = true
		}
		if m.GetTerm() != 0 { // has a hard state
			sync = sync || m.GetTerm() != next.term || m.GetVote() != next.vote
			next.term, next.vote, next.commit = m.GetTerm(), m.GetVote(), m.GetCommit()
		}
	}
	if batch.Empty() && next == *st {
		return batch.Close()
	}
	put(batch, groupKey(group, kindState), next.append(make([]byte, 0, groupStateSize)))
	newest := s.wal.newest.Load()
	if err := s.commit(batch, sync); err != nil {
		return err
	}
	if sync {
		if err := s.walUsed(newest); err != nil {
			return err
		}
	}
	*st = next
	if adopted != nil {
		s.adopt(group, adopted)
	}
	return nil
}

// replaceLog adds to the batch that the log starts over after a snapshot.
func (s *Store) replaceLog(batch *pebble.Batch, group uint32, meta *raftpb.SnapshotMetadata, st *groupState) error {
	if !s.hasSnapshot(group, meta.GetIndex(), meta.GetTerm()) {
		return fmt.Errorf("storage: snapshot at %d of term %d has no file", meta.GetIndex(), meta.GetTerm())
	}
	b := base{index: meta.GetIndex(), term: meta.GetTerm(), conf: meta.GetConfState()}
	if err := putBase(batch, group, &b); err != nil {
		return err
	}
	deleteRange(batch, entryKey(group, 0), entriesEnd(group))
	st.last = b.index
	st.commit = max(st.commit, b.index)
	return nil
}

// putEntries replaces all entries from the index of the first one on.
func putEntries(batch *pebble.Batch, group uint32, entries []*raftpb.Entry, st *groupState) {
	first := entries[0].GetIndex()
	if first > st.last+1 || first == 0 {
		panic(fmt.Sprintf("storage: entry %d after %d leaves a gap", first, st.last))
	}
	if first <= st.last { // otherwise there is nothing to delete, and range deletions are not free
		deleteRange(batch, entryKey(group, first), entriesEnd(group))
	}
	for i, e := range entries {
		if e.GetIndex() != first+uint64(i) {
			panic(fmt.Sprintf("storage: entry %d where %d belongs", e.GetIndex(), first+uint64(i)))
		}
		key := entryKey(group, e.GetIndex())
		op := batch.SetDeferred(len(key), entryHead+len(e.GetData()))
		copy(op.Key, key)
		appendEntryValue(op.Value[:0], e)
		must(op.Finish())
	}
	st.last = first + uint64(len(entries)) - 1
}

// commit writes the batch. With sync it waits for the disk.
func (s *Store) commit(batch *pebble.Batch, sync bool) error {
	err := func() error {
		if !sync {
			return s.db.Apply(batch, pebble.NoSync)
		}
		if err := s.db.ApplyNoSyncWait(batch, pebble.Sync); err != nil {
			return err
		}
		return batch.SyncWait()
	}()
	if err != nil {
		err = fmt.Errorf("storage: write the log: %w", err)
		s.fail(err)
		return err
	}
	return batch.Close()
}

// Compact deletes entries up to an index, as far as no kept snapshot needs them. It isn't synced:
// an entry that reappears is deleted again later.
func (s *Store) Compact(group uint32, upTo uint64) (err error) {
	if err := s.Err(); err != nil {
		return err
	}
	defer rescue(&err)
	end := min(upTo+1, s.oldestNeeded(group))
	if end <= 1 {
		return nil
	}
	batch := s.db.NewBatch()
	deleteRange(batch, entryKey(group, 0), entryKey(group, end))
	return s.commit(batch, false)
}

func putBase(batch *pebble.Batch, group uint32, b *base) error {
	v, err := b.append(nil)
	if err != nil {
		return fmt.Errorf("storage: encode members: %w", err)
	}
	put(batch, groupKey(group, kindBase), v)
	return nil
}

func put(batch *pebble.Batch, key, value []byte) { must(batch.Set(key, value, nil)) }

func deleteRange(batch *pebble.Batch, from, to []byte) { must(batch.DeleteRange(from, to, nil)) }

// must is for operations on a batch in memory, which fail only when misused.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("storage: batch: %v", err))
	}
}
