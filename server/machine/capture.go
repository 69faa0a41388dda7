package machine

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/lockstep-dev/lockstep/server/command"
)

// A snapshot is snapshotMagic and a sequence of chunks: the header, the shards in order, the
// segments of the two histories, and the end. A chunk is its kind, the size of its content in 4
// bytes, the content, and a checksum (CRC-32C, 4 bytes) over all chunks so far, so that missing,
// duplicate and reordered chunks are detected as well. The bytes are a function of the state alone:
// equal machines have equal snapshots.
const (
	snapshotMagic  = "lockstep machine\n"
	snapshotFormat = 1 // first field of the header
	// recoveryFormat has a pending Recovery at the end of the header. Builds that cannot end one do
	// not read it.
	recoveryFormat = 2
	// memberFormat has a Recovery, pending or not, and the member table there.
	memberFormat = 3
	// birthFormat has the birth after the member table. It comes with feature level 2.
	birthFormat = 4
	// leaseFormat has the lease clock after the birth, which may be zero in this format, and the
	// ends of leases and delays in sessions and claims. A machine uses it from its first checkpoint
	// of leases on.
	leaseFormat = 5

	chunkHeader   = 'H'
	chunkShard    = 'S'
	chunkHistory  = 'A'
	chunkAbnormal = 'B'
	chunkEnd      = 'E'

	chunkHead    = 1 + 4 // kind and size
	checksumSize = 4

	shardsPerChunk = 16
	shardChunks    = shardCount / shardsPerChunk
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Capture walks over the state as of the moment it was started, while commands continue to be
// applied. A shard is encoded when the walk reaches it or just before its first change, whichever
// comes first. Shards encoded early are kept until the walk gets there; in the worst case that is
// the whole snapshot except the histories, whose segments are shared.
type Capture struct {
	m        *Machine // nil when the capture is over
	leases   bool     // in leaseFormat
	header   []byte
	early    [shardCount][]byte
	segments [2][]segment // of the two histories
	steps    int          // chunks returned
	sum      uint32
}

// changing must be called before any part of a session that belongs in a snapshot changes: the
// session itself, its claims, the record of its end.
func (m *Machine) changing(id command.SessionID) {
	if m.capture != nil {
		m.capture.before(shardOf(id))
	}
}

func (c *Capture) before(shard int) {
	const header = 1
	if shard/shardsPerChunk+header >= c.steps && c.early[shard] == nil {
		c.early[shard] = c.m.appendShard(make([]byte, 0, c.m.sizeOfShard(shard)), shard, c.leases)
	}
}

// StartCapture starts a snapshot of the present state. It panics if a capture is already running.
// Starting is cheap; [Capture.Next] does the walk.
func (m *Machine) StartCapture() *Capture {
	if m.capture != nil {
		panic("machine: a capture is running already")
	}
	c := &Capture{m: m, header: m.appendHeader(nil), leases: m.leaseClock != 0}
	for i, r := range [...]*ring{&m.history, &m.abnormal} {
		// The copies keep their length while the last segment grows beyond it.
		c.segments[i] = append([]segment(nil), r.segments...)
	}
	m.capture = c
	return c
}

// AbortCapture ends the running capture, if any.
func (m *Machine) AbortCapture() {
	if m.capture != nil {
		m.capture.m = nil
		m.capture = nil
	}
}

// Next returns the next part of the snapshot, and whether it was the last. The snapshot is the
// concatenation of all parts. A part is a few shards or 256 KiB of history, so calls take
// milliseconds at most. The caller may keep the part. Next panics when the capture is over.
func (c *Capture) Next() (chunk []byte, last bool) {
	if c.m == nil {
		panic("machine: Next of a capture that is over")
	}
	step := c.steps
	c.steps++
	if step == 0 {
		head := append([]byte(snapshotMagic), make([]byte, chunkHead)...)
		return c.seal(append(head, c.header...), len(snapshotMagic), chunkHeader), false
	}
	if step -= 1; step < shardChunks {
		return c.seal(c.shards(step*shardsPerChunk), 0, chunkShard), false
	}
	step -= shardChunks
	for i, kind := range [...]byte{chunkHistory, chunkAbnormal} {
		if step < len(c.segments[i]) {
			segment := c.segments[i][step].bytes
			return c.seal(append(newChunk(len(segment)), segment...), 0, kind), false
		}
		step -= len(c.segments[i])
	}
	c.m.AbortCapture()
	return c.seal(newChunk(0), 0, chunkEnd), true
}

// newChunk returns the room for the head of a chunk, and room for so many bytes of content in its
// capacity.
func newChunk(content int) []byte { return make([]byte, chunkHead, chunkHead+content+checksumSize) }

// shards returns a chunk with the encoding of some shards, which may be large: it is allocated
// once.
func (c *Capture) shards(first int) []byte {
	size := 0
	for i := first; i < first+shardsPerChunk; i++ {
		size += len(c.early[i])
		if c.early[i] == nil {
			size += c.m.sizeOfShard(i)
		}
	}
	chunk := newChunk(size)
	for i := first; i < first+shardsPerChunk; i++ {
		if early := c.early[i]; early != nil {
			chunk = append(chunk, early...)
			c.early[i] = nil
			continue
		}
		chunk = c.m.appendShard(chunk, i, c.leases)
	}
	return chunk
}

// seal fills the head of the chunk that begins at start, and adds the checksum.
func (c *Capture) seal(b []byte, start int, kind byte) []byte {
	chunk := b[start:]
	chunk[0] = kind
	binary.BigEndian.PutUint32(chunk[1:], uint32(len(chunk)-chunkHead))
	c.sum = crc32.Update(c.sum, castagnoli, chunk)
	return binary.BigEndian.AppendUint32(b, c.sum)
}

func (m *Machine) appendHeader(b []byte) []byte {
	format := uint64(snapshotFormat)
	if m.recovery.Pending() {
		format = recoveryFormat
	}
	if len(m.members) > 0 {
		format = memberFormat
	}
	if m.birth != (command.BirthID{}) {
		format = birthFormat
	}
	if m.leaseClock != 0 {
		format = leaseFormat
	}
	b = binary.AppendUvarint(b, format)
	b = command.AppendLimits(b, &m.limits) // begins with the feature level
	for _, v := range [...]uint64{
		m.index, m.hash, uint64(m.nextToken), m.grants, m.events, m.endings,
		m.history.dropped, uint64(len(m.history.segments)),
		m.abnormal.dropped, uint64(len(m.abnormal.segments)),
	} {
		b = binary.AppendUvarint(b, v)
	}
	if r := m.recovery; format >= recoveryFormat {
		b = command.AppendBool(b, r.FloorDue)
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(r.Wait)), uint64(r.Stamp))
	}
	if format < memberFormat {
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(m.members)))
	for i := range m.members {
		b = command.AppendMember(b, &m.members[i])
	}
	if format >= birthFormat {
		b = append(b, m.birth[:]...)
	}
	if format >= leaseFormat {
		b = binary.AppendUvarint(b, uint64(m.leaseClock))
	}
	return b
}

// sizeOfShard returns about how many bytes the encoding of a shard takes, rather more than less.
func (m *Machine) sizeOfShard(i int) int {
	shard := &m.shards[i]
	n := 16 + len(shard.ended.m)*2*sessionBytes
	for _, t := range [...]*table[command.SessionID, *session]{&shard.live, &shard.leaving} {
		for _, s := range t.m { // in any order: this is a sum
			n += s.bytes
		}
	}
	return n
}

// appendShard encodes a shard: its live, leaving and ended sessions, each in order of their ids.
func (m *Machine) appendShard(b []byte, i int, leases bool) []byte {
	shard := &m.shards[i]
	for _, t := range [...]*table[command.SessionID, *session]{&shard.live, &shard.leaving} {
		b = binary.AppendUvarint(b, uint64(len(t.m)))
		for _, s := range sortedSessions(t) {
			b = appendSession(b, s, leases)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(shard.ended.m)))
	for _, id := range sortedIDs(&shard.ended) {
		e := shard.ended.m[id]
		b = append(b, id[:]...)
		b = append(b, byte(e.code))
		b = binary.AppendUvarint(b, e.number)
		b = command.AppendText(command.AppendText(b, e.by), e.reason)
	}
	return b
}

func appendSession(b []byte, s *session, leases bool) []byte {
	b = append(b, s.id[:]...)
	b = append(b, s.secret[:]...)
	b = command.AppendBool(b, s.numbered)
	b = append(b, byte(s.ended))
	for _, v := range [...]uint64{uint64(s.ttl), s.change, s.floor, s.seen, s.last} {
		b = binary.AppendUvarint(b, v)
	}
	if leases {
		b = binary.AppendUvarint(b, uint64(s.leaseEnd))
	}
	b = command.AppendLabels(b, s.metadata)
	for _, list := range [...][]*claim{s.claims, s.closing} {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, c := range list {
			b = appendClaim(b, c)
			if leases && c.closing {
				b = binary.AppendUvarint(b, uint64(c.delayEnd))
			}
		}
	}
	b = binary.AppendUvarint(b, uint64(len(s.outcomes)))
	for i := range s.outcomes {
		b = appendOutcome(b, &s.outcomes[i])
	}
	return b
}

func appendClaim(b []byte, c *claim) []byte {
	b = binary.AppendUvarint(b, c.seq)
	b = command.AppendSpec(b, &c.spec)
	b = command.AppendText(b, c.nonce)
	for _, v := range [...]uint64{c.at.Index, uint64(c.at.N), uint64(c.since), c.change} {
		b = binary.AppendUvarint(b, v)
	}
	b = command.AppendBool(b, c.granted)
	if c.granted {
		b = binary.AppendUvarint(b, c.order)
		b = binary.AppendUvarint(b, uint64(c.token))
		b = binary.AppendUvarint(b, uint64(c.delay))
	}
	return b
}

func appendOutcome(b []byte, o *outcome) []byte {
	b = binary.AppendUvarint(b, o.seq)
	b = append(b, byte(o.state), byte(o.code), o.names)
	for _, v := range [...]uint64{uint64(o.token), o.change, o.print} {
		b = binary.AppendUvarint(b, v)
	}
	return command.AppendText(command.AppendText(command.AppendText(b, o.nonce), o.by), o.reason)
}
