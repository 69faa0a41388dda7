package machine

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/lockstep-dev/lockstep/server/command"
)

// A ring is a history bounded in bytes. Its records are in segments that bytes are only ever
// appended to, so a snapshot can share the slices; when the ring is full, its oldest segment is
// dropped.
type ring struct {
	limit    int
	size     int
	dropped  uint64 // number of the last dropped event
	segments []segment
}

type segment struct {
	bytes  []byte
	last   uint64 // number of its last event
	filter filter // of the hashes of its names; derived from the records, not in a snapshot
}

// A filter can rule out that a hash is in a segment, so that a search reads the segments that have
// its name and few others. It has one byte per 64 bytes of segment. With 2,000 names of one event
// each in 256 KiB, the most that occurs in practice, one answer in 30 is a false positive; with the
// 1,000 names of a grant and a release each, one in 300.
type filter []uint64

// filterShare is the number of segment bytes per byte of filter.
const filterShare = 64

func newFilter(segment int) filter { return make(filter, max(1, segment/filterShare/8)) }

// places returns the four bits for a hash, computed from its two halves.
func (f filter) places(hash uint32) (bits [4]uint64) {
	wide := uint64(hash) * hashPrime
	step := wide>>32 | 1
	for i := range bits {
		bits[i] = wide % uint64(len(f)*64)
		wide += step
	}
	return bits
}

func (f filter) add(hash uint32) {
	for _, at := range f.places(hash) {
		f[at/64] |= 1 << (at % 64)
	}
}

// has reports whether the hash may have been added.
func (f filter) has(hash uint32) bool {
	for _, at := range f.places(hash) {
		if f[at/64]&(1<<(at%64)) == 0 {
			return false
		}
	}
	return true
}

// maxSegment is the segment size of a large ring. A ring has 16 segments or more, so that at most a
// sixteenth of the history is dropped at once.
const maxSegment = 256 << 10

func (r *ring) segmentSize() int { return min(maxSegment, r.limit/16) }

// add appends an encoded event.
func (r *ring) add(record []byte, number uint64) {
	last := len(r.segments) - 1
	if last < 0 || len(r.segments[last].bytes)+len(record) > r.segmentSize() {
		r.segments = append(r.segments, segment{filter: newFilter(r.segmentSize())})
		last++
	}
	s := &r.segments[last]
	s.filter.add(recordHash(record))
	s.bytes = append(s.bytes, record...)
	s.last = number
	r.size += len(record)
	r.trim()
}

// resize changes the limit.
func (r *ring) resize(limit int) {
	r.limit = limit
	r.trim()
}

func (r *ring) trim() {
	drop := 0
	for r.size > r.limit && drop < len(r.segments) {
		r.size -= len(r.segments[drop].bytes)
		r.dropped = r.segments[drop].last
		drop++
	}
	r.segments = slices.Delete(r.segments, 0, drop)
}

// newest appends to list the newest events of the name, newest first, until list has limit events.
// It takes only events numbered below until.
func (r *ring) newest(list []command.Event, name string, limit int, until uint64) []command.Event {
	hash := uint32(hashText(0, name))
	var places []int // of the records in one segment
	for i := len(r.segments) - 1; i >= 0 && len(list) < limit; i-- {
		if !r.segments[i].filter.has(hash) {
			continue
		}
		b := r.segments[i].bytes
		places = places[:0]
		for at := 0; at < len(b); {
			size, n := binary.Uvarint(b[at:])
			if binary.LittleEndian.Uint32(b[at+n:]) == hash {
				places = append(places, at)
			}
			at += n + int(size)
		}
		for j := len(places) - 1; j >= 0 && len(list) < limit; j-- {
			e, err := decodeRecord(b[places[j]:])
			if err != nil {
				panic("machine: history: " + err.Error()) // checked on restore
			}
			if e.Name == name && e.Number < until {
				list = append(list, e)
			}
		}
	}
	return list
}

// record adds an event for each name of the claim to the history and the output.
func (m *Machine) record(kind command.EventKind, c *claim, by, reason string) {
	for i := range c.links {
		n := c.links[i].name
		m.events++
		m.scratch = appendRecord(m.scratch[:0], m.events, kind, n, c, m.wall, by, reason)
		m.hash = hashBytes(m.hash, m.scratch)
		m.history.add(m.scratch, m.events)
		if kind == command.EventExpired || kind == command.EventRevoked {
			m.abnormal.add(m.scratch, m.events)
		}
		m.out.Events = append(m.out.Events, command.Event{
			Number: m.events, Kind: kind, Name: n.text, Claim: c.id(), Token: c.token, Mode: c.spec.Mode,
			Wall: m.wall, Metadata: c.metadata(), By: by, Reason: reason,
		})
	}
}

// appendRecord appends size, hash of the name, and fields. The hash lets a search skip the records
// of other names without reading them.
func appendRecord(b []byte, number uint64, kind command.EventKind, n *name, c *claim, wall command.WallMillis, by, reason string) []byte {
	const room = 2 // most records are longer than 127 bytes and shorter than 16 KiB
	b = append(b, make([]byte, room)...)
	b = binary.LittleEndian.AppendUint32(b, uint32(n.hash))
	b = binary.AppendUvarint(b, number)
	b = append(b, byte(kind), byte(c.spec.Mode))
	b = command.AppendText(b, n.text)
	b = command.AppendClaimID(b, c.id())
	b = binary.AppendUvarint(b, uint64(c.token))
	b = binary.AppendUvarint(b, uint64(wall))
	b = command.AppendText(b, by)
	b = command.AppendText(b, reason)
	b = command.AppendLabels(b, c.session.metadata)
	b = command.AppendLabels(b, c.spec.Metadata)
	size := len(b) - room
	if size >= 1<<14 {
		var prefix [binary.MaxVarintLen64]byte
		return slices.Replace(b, 0, room, prefix[:binary.PutUvarint(prefix[:], uint64(size))]...)
	}
	b[0], b[1] = byte(size)|0x80, byte(size>>7) // a size below 128 takes two bytes as well
	return b
}

// recordHash returns the hash of the name in the record at the start of b.
func recordHash(b []byte) uint32 {
	_, n := binary.Uvarint(b)
	return binary.LittleEndian.Uint32(b[n:])
}

// errRecord is the result of decoding a record that is not as long as it says.
var errRecord = errors.New("truncated")

// decodeRecord reads the record at the start of b.
func decodeRecord(b []byte) (command.Event, error) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) || size < 4 {
		return command.Event{}, errRecord
	}
	d := command.NewDecoder(string(b[n+4 : n+int(size)]))
	e := command.Event{Number: d.Uint(), Kind: command.EventKind(d.Byte()), Mode: command.Mode(d.Byte()), Name: d.Text(), Claim: d.ClaimID()}
	e.Token = command.Token(d.Uint())
	e.Wall = command.WallMillis(d.Uint())
	e.By, e.Reason = d.Text(), d.Text()
	under := d.Labels()
	e.Metadata = mergeLabels(under, d.Labels())
	return e, d.End()
}

// History returns the newest events of a name, at most limit, oldest first. Complete is false when
// older ones were left out or may have been dropped. Expiries and revocations are kept longer than
// other events. History reads the segments that have the name, and only the filters of the others.
// In the worst case, when all have it, it reads the whole history, which takes milliseconds.
func (m *Machine) History(name string, limit int) (events []command.Event, complete bool) {
	events = m.history.newest(nil, name, limit+1, ^uint64(0))
	events = m.abnormal.newest(events, name, limit+1, m.history.dropped+1)
	complete = m.history.dropped == 0 && len(events) <= limit
	events = events[:min(len(events), limit)]
	slices.Reverse(events)
	return events, complete
}

// A Past is the history of a machine at one moment. It does not change while the machine goes on,
// and may be read from any goroutine. Its only cost is that the bytes of the history, at most
// Limits.HistoryBytes, are kept in memory. The zero value is empty.
type Past struct {
	segments []segment // the machine only ever appends bytes to its own, beyond the length of these
}

// Past returns the history as it is now.
func (m *Machine) Past() Past { return Past{slices.Clone(m.history.segments)} }

// After returns the events with numbers above after, at most limit, oldest first. If the first one
// is not after + 1, the events in between are no longer in the history. It reads at most one
// segment, 256 KiB, in addition to those that it returns.
func (p Past) After(after uint64, limit int) (events []command.Event) {
	for i := range p.segments {
		s := &p.segments[i]
		if s.last <= after {
			continue
		}
		for at := 0; at < len(s.bytes) && len(events) < limit; {
			e, err := decodeRecord(s.bytes[at:])
			if err != nil {
				panic("machine: history: " + err.Error()) // checked on restore
			}
			if e.Number > after {
				events = append(events, e)
			}
			size, n := binary.Uvarint(s.bytes[at:])
			at += n + int(size)
		}
	}
	return events
}
