package storage

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
)

// A BirthID is the birth of the cluster that a directory belongs to; zero: it has none, or none is
// known yet.
type BirthID [16]byte

func (id BirthID) String() string { return hex.EncodeToString(id[:]) }

// Birth returns the recorded birth, or zero.
func (s *Store) Birth() (id BirthID, err error) {
	v, err := s.note([]byte{prefixBirth})
	if err != nil || v == nil {
		return id, err
	}
	if len(v) != len(id) {
		return id, fmt.Errorf("storage: the birth record has %d bytes", len(v))
	}
	return BirthID(v), nil
}

// RememberBirth records the birth durably. Once recorded, it does not change: another one is an
// error.
func (s *Store) RememberBirth(id BirthID) error {
	known, err := s.Birth()
	if err != nil || known == id {
		return err
	}
	if known != (BirthID{}) {
		return fmt.Errorf("storage: the directory %s belongs to the cluster born as %s, not to %s", s.dir, known, id)
	}
	return s.remember([]byte{prefixBirth}, id[:])
}

// MaxStarts bounds how many of a directory's last starts are known.
const MaxStarts = 256

// Starts are the processes that ran on a directory, one after the other. A copy of the directory
// has its own starts from the moment of the copy.
type Starts struct {
	Count uint64   // number of all starts
	Last  []uint32 // ids of the last ones, drawn at random, newest last: at most MaxStarts
}

// At returns the id of the start with this number, if it is among the last ones.
func (s Starts) At(number uint64) (id uint32, known bool) {
	if number == 0 || number > s.Count || s.Count-number >= uint64(len(s.Last)) {
		return 0, false
	}
	return s.Last[uint64(len(s.Last))-1-(s.Count-number)], true
}

// BeginStart counts a start of this directory, durably, and returns all that are known, including
// this one.
func (s *Store) BeginStart(random io.Reader) (st Starts, err error) {
	v, err := s.note([]byte{prefixStarts})
	if err != nil {
		return st, err
	}
	if st, err = decodeStarts(v); err != nil {
		return st, err
	}
	var id [4]byte
	if _, err := io.ReadFull(random, id[:]); err != nil {
		return st, fmt.Errorf("generate the id of a start: %w", err)
	}
	st.Count++
	st.Last = append(st.Last, binary.BigEndian.Uint32(id[:]))
	st.Last = st.Last[max(0, len(st.Last)-MaxStarts):]
	return st, s.remember([]byte{prefixStarts}, st.encode())
}

func (s Starts) encode() []byte {
	b := binary.BigEndian.AppendUint64([]byte{recordVersion}, s.Count)
	for _, id := range s.Last {
		b = binary.BigEndian.AppendUint32(b, id)
	}
	return b
}

func decodeStarts(v []byte) (s Starts, err error) {
	const head = 1 + 8
	if v == nil {
		return s, nil
	}
	if len(v) < head || v[0] != recordVersion || (len(v)-head)%4 != 0 {
		return s, fmt.Errorf("storage: the record of starts has %d bytes, version %v", len(v), v[:min(1, len(v))])
	}
	s.Count = binary.BigEndian.Uint64(v[1:])
	for b := v[head:]; len(b) > 0; b = b[4:] {
		s.Last = append(s.Last, binary.BigEndian.Uint32(b))
	}
	return s, nil
}

// A Start is one start of another node's directory.
type Start struct {
	Number uint64 // zero: none is known
	ID     uint32
}

// KnownStart returns the newest start of another node that this one has met, or zero.
func (s *Store) KnownStart(node uint64) (st Start, err error) {
	v, err := s.note(startKey(node))
	if err != nil || v == nil {
		return st, err
	}
	if len(v) != 12 {
		return st, fmt.Errorf("storage: start record of node %016x has %d bytes", node, len(v))
	}
	return Start{binary.BigEndian.Uint64(v), binary.BigEndian.Uint32(v[8:])}, nil
}

// RememberStart durably records the start with which another node was met.
func (s *Store) RememberStart(node uint64, st Start) error {
	v := binary.BigEndian.AppendUint64(nil, st.Number)
	return s.remember(startKey(node), binary.BigEndian.AppendUint32(v, st.ID))
}

// OldCopy returns why the directory is an older copy of itself, or "".
func (s *Store) OldCopy() (why string, err error) {
	v, err := s.note([]byte{prefixOldCopy})
	return string(v), err
}

// RememberOldCopy durably records why the directory is an older copy of itself. The record is
// permanent.
func (s *Store) RememberOldCopy(why string) error {
	return s.remember([]byte{prefixOldCopy}, []byte(why))
}
