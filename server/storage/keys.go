package storage

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// The key space. Numbers are big endian so that keys sort in numeric order.
//
//	00                          identity of the directory
//	01 node(8)                  instance id of another node, first learned in a handshake
//	02 group(4) 's'             state of a group
//	02 group(4) 'm'             where the log of a group starts
//	02 group(4) 'e' index(8)    one entry
//	03                          birth of the cluster; older builds ignore it and the next two
//	04                          starts of this directory
//	05 node(8)                  newest start of another node
const (
	prefixIdentity = 0x00
	prefixInstance = 0x01
	prefixGroup    = 0x02
	prefixBirth    = 0x03
	prefixStarts   = 0x04
	prefixStart    = 0x05
	prefixOldCopy  = 0x06
	prefixPurge    = 0x07

	kindState = 's'
	kindBase  = 'm'
	kindEntry = 'e'
)

// recordVersion is the first byte of every state and base record.
const recordVersion = 1

func groupKey(group uint32, kind byte) []byte {
	k := make([]byte, 0, 14)
	k = append(k, prefixGroup)
	k = binary.BigEndian.AppendUint32(k, group)
	return append(k, kind)
}

func entryKey(group uint32, index uint64) []byte {
	return binary.BigEndian.AppendUint64(groupKey(group, kindEntry), index)
}

// entriesEnd returns the key after all entries of a group.
func entriesEnd(group uint32) []byte { return groupKey(group, kindEntry+1) }

func entryIndex(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

func instanceKey(node uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefixInstance}, node)
}

func startKey(node uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefixStart}, node)
}

// entryHead is the size of what precedes an entry's data: term (8) and type (1).
const entryHead = 9

func appendEntryValue(dst []byte, e *raftpb.Entry) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, e.GetTerm())
	dst = append(dst, byte(e.GetType()))
	return append(dst, e.GetData()...)
}

func decodeEntry(index uint64, v []byte) (*raftpb.Entry, error) {
	if len(v) < entryHead {
		return nil, fmt.Errorf("entry %d has %d bytes, must have at least %d", index, len(v), entryHead)
	}
	e := &raftpb.Entry{
		Index: &index,
		Term:  proto.Uint64(binary.LittleEndian.Uint64(v)),
		Type:  raftpb.EntryType(v[8]).Enum(),
	}
	if len(v) > entryHead {
		e.Data = append([]byte(nil), v[entryHead:]...)
	}
	return e, nil
}

// A groupState is what each batch of a group ends with: its hard state, and what shows at the next
// start that the batch is complete and our own.
type groupState struct {
	instance [16]byte
	term     uint64
	vote     uint64
	commit   uint64
	last     uint64 // index of the last entry, or of the base if the log is empty
}

const groupStateSize = 1 + 16 + 4*8

func (s *groupState) append(dst []byte) []byte {
	dst = append(dst, recordVersion)
	dst = append(dst, s.instance[:]...)
	for _, n := range []uint64{s.term, s.vote, s.commit, s.last} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	return dst
}

func (s *groupState) decode(v []byte) error {
	if len(v) != groupStateSize || v[0] != recordVersion {
		return fmt.Errorf("state record of %d bytes, version %v", len(v), v[:min(1, len(v))])
	}
	copy(s.instance[:], v[1:])
	for i, p := range []*uint64{&s.term, &s.vote, &s.commit, &s.last} {
		*p = binary.LittleEndian.Uint64(v[17+8*i:])
	}
	return nil
}

// A base is where a log starts: at the snapshot with which the group began on this node, or which
// replaced its log.
type base struct {
	index, term uint64
	conf        *raftpb.ConfState
	// empty: there is no snapshot file; the state before the first entry is the empty one
	empty bool
}

const baseHead = 1 + 8 + 8 + 1

func (b *base) append(dst []byte) ([]byte, error) {
	dst = append(dst, recordVersion)
	dst = binary.LittleEndian.AppendUint64(dst, b.index)
	dst = binary.LittleEndian.AppendUint64(dst, b.term)
	var flags byte
	if b.empty {
		flags = 1
	}
	return proto.MarshalOptions{}.MarshalAppend(append(dst, flags), b.conf)
}

func (b *base) decode(v []byte) error {
	if len(v) < baseHead || v[0] != recordVersion {
		return fmt.Errorf("base record of %d bytes, version %v", len(v), v[:min(1, len(v))])
	}
	b.index = binary.LittleEndian.Uint64(v[1:])
	b.term = binary.LittleEndian.Uint64(v[9:])
	b.empty = v[17] == 1
	b.conf = new(raftpb.ConfState)
	return proto.Unmarshal(v[baseHead:], b.conf)
}
