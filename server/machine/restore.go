package machine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"

	"github.com/lockstep-dev/lockstep/server/command"
)

// ErrSnapshot is what every error of [Restore] wraps, except those of its reader and
// [command.ErrNewer].
var ErrSnapshot = errors.New("machine: damaged snapshot")

// maxChunk bounds the content of a chunk. A shard of a machine at its limits is far smaller.
const maxChunk = 1 << 30

// Restore reads a snapshot to the end of r. It returns the machine exactly as it was, or an error:
// a snapshot that is damaged, truncated, followed by other bytes, from a newer build or not a
// snapshot at all yields no machine. It allocates at most a few times what r actually delivers.
func Restore(r io.Reader) (*Machine, error) {
	in := &chunkReader{r: r}
	m := New()
	if err := m.restore(in); errors.Is(err, command.ErrNewer) {
		return nil, fmt.Errorf("machine: read a snapshot: %w", err)
	} else if err != nil {
		return nil, fmt.Errorf("%w, part %d: %w", ErrSnapshot, in.chunks, err)
	}
	return m, nil
}

func (m *Machine) restore(in *chunkReader) error {
	header, err := in.start()
	if err != nil {
		return err
	}
	segments, err := m.readHeader(header)
	if err != nil {
		return err
	}
	found := finds{counts: &m.counts, leases: m.leaseClock != 0}
	for first := 0; first < shardCount; first += shardsPerChunk {
		content, err := in.next(chunkShard)
		if err != nil {
			return err
		}
		if err := m.readShards(first, content, &found); err != nil {
			return err
		}
	}
	if err := readRing(&m.history, segments[0], in, chunkHistory); err != nil {
		return err
	}
	if err := readRing(&m.abnormal, segments[1], in, chunkAbnormal); err != nil {
		return err
	}
	if err := in.finish(); err != nil {
		return err
	}
	if err := m.assemble(&found); err != nil {
		return err
	}
	return m.CheckInvariants()
}

// A chunkReader reads and checks the frames of a snapshot.
type chunkReader struct {
	r      io.Reader
	sum    uint32
	chunks int
}

func (in *chunkReader) start() (string, error) {
	magic := make([]byte, len(snapshotMagic))
	if _, err := io.ReadFull(in.r, magic); err != nil {
		return "", fmt.Errorf("not a snapshot of a lock table: %w", err)
	}
	if string(magic) != snapshotMagic {
		return "", fmt.Errorf("not a snapshot of a lock table: it starts with %q", magic)
	}
	return in.next(chunkHeader)
}

func (in *chunkReader) next(kind byte) (string, error) {
	var head [5]byte
	if _, err := io.ReadFull(in.r, head[:]); err != nil {
		return "", fmt.Errorf("cut short: %w", err)
	}
	size := binary.BigEndian.Uint32(head[1:])
	if head[0] != kind || size > maxChunk {
		return "", fmt.Errorf("section of kind %q with %d bytes, want kind %q", head[0], size, kind)
	}
	var content bytes.Buffer // grows with what arrives, not with what is announced
	if _, err := io.CopyN(&content, in.r, int64(size)+crc32.Size); err != nil {
		return "", fmt.Errorf("cut short: %w", err)
	}
	b := content.Bytes()
	in.sum = crc32.Update(crc32.Update(in.sum, castagnoli, head[:]), castagnoli, b[:size])
	if got := binary.BigEndian.Uint32(b[size:]); got != in.sum {
		return "", fmt.Errorf("checksum %08x, want %08x", got, in.sum)
	}
	in.chunks++
	return string(b[:size]), nil
}

func (in *chunkReader) finish() error {
	if _, err := in.next(chunkEnd); err != nil {
		return err
	}
	var one [1]byte
	if _, err := io.ReadFull(in.r, one[:]); err != io.EOF {
		return errors.New("trailing bytes")
	}
	return nil
}

func (m *Machine) readHeader(content string) (segments [2]uint64, err error) {
	d := command.NewDecoder(content)
	format := d.Uint()
	if format > leaseFormat {
		return segments, fmt.Errorf("%w: the snapshot has format %d, this build supports %d to %d", command.ErrNewer, format, snapshotFormat, leaseFormat)
	}
	if format < snapshotFormat {
		return segments, fmt.Errorf("format %d, this build supports %d to %d", format, snapshotFormat, leaseFormat)
	}
	limits := d.Limits()
	if d.Err() != nil {
		return segments, d.Err()
	}
	m.index, m.hash, m.nextToken = d.Uint(), d.Uint(), command.Token(d.Uint())
	m.grants, m.events, m.endings = d.Uint(), d.Uint(), d.Uint()
	m.history.dropped, segments[0] = d.Uint(), d.Uint()
	m.abnormal.dropped, segments[1] = d.Uint(), d.Uint()
	if format >= recoveryFormat {
		m.recovery = Recovery{FloorDue: d.Bool(), Wait: command.Millis(d.Uint()), Stamp: command.WallMillis(d.Uint())}
		if d.Err() == nil && !m.recovery.Pending() && format == recoveryFormat {
			return segments, fmt.Errorf("format %d without a recovery", format)
		}
	}
	if format >= memberFormat {
		if err := m.readMembers(d); err != nil {
			return segments, err
		}
	}
	if format >= birthFormat {
		m.birth = d.Bytes16()
		if d.Err() == nil && m.birth == (command.BirthID{}) && format == birthFormat {
			return segments, fmt.Errorf("format %d without a birth", format)
		}
	}
	if format >= leaseFormat {
		if m.leaseClock = command.Millis(d.Uint()); d.Err() == nil && m.leaseClock == 0 {
			return segments, fmt.Errorf("format %d without a lease clock", format)
		}
	}
	if err := d.End(); err != nil {
		return segments, err
	}
	if broken := limits.Broken(); broken != "" {
		return segments, fmt.Errorf("limit %s", broken)
	}
	m.setLimits(limits)
	m.recent[m.index%recentHashes] = indexHash{m.index, m.hash}
	m.marks.start = Mark{m.index, m.hash}
	return segments, nil
}

// finds collects from the shards what has an order across all of them.
type finds struct {
	queued, granted []*claim // granted and closing
	ended           []command.SessionID
	counts          *Counts
	leases          bool // the snapshot has the ends of leases and delays
}

func (m *Machine) readShards(first int, content string, found *finds) error {
	d := command.NewCloningDecoder(content)
	for i := first; i < first+shardsPerChunk; i++ {
		if err := m.readShard(i, d, found); err != nil {
			return err
		}
	}
	return d.End()
}

func (m *Machine) readShard(i int, d *command.Decoder, found *finds) error {
	shard := &m.shards[i]
	for _, t := range [...]*table[command.SessionID, *session]{&shard.live, &shard.leaving} {
		for range d.Count(32) {
			s, err := readSession(d, found)
			if err != nil {
				return err
			}
			leaving := t == &shard.leaving
			if shardOf(s.id) != i || t.m[s.id] != nil || leaving != (s.ended != command.OK) || leaving && len(s.closing) == 0 {
				return fmt.Errorf("session %v is in the wrong place", s.id)
			}
			t.put(s.id, s)
			m.countEnds(s)
			if !leaving {
				m.byID.ReplaceOrInsert(s)
			}
		}
	}
	m.counts.Sessions += len(shard.live.m)
	for range d.Count(20) {
		var id command.SessionID = d.Bytes16()
		e := endedSession{code: command.Code(d.Byte()), number: d.Uint(), by: d.Text(), reason: d.Text()}
		if _, twice := shard.ended.m[id]; twice || shardOf(id) != i {
			return fmt.Errorf("ended session %v is in the wrong place", id)
		}
		shard.ended.put(id, e)
		found.ended = append(found.ended, id)
	}
	return d.Err()
}

func readSession(d *command.Decoder, found *finds) (*session, error) {
	s := &session{counts: found.counts, id: d.Bytes16(), secret: d.Bytes16(), numbered: d.Bool(), ended: command.Code(d.Byte())}
	s.ttl = command.Millis(d.Uint())
	s.change, s.floor, s.seen, s.last = d.Uint(), d.Uint(), d.Uint(), d.Uint()
	if found.leases {
		s.leaseEnd = command.Millis(d.Uint())
	}
	s.metadata = d.Labels()
	s.weigh(s.size())
	for range d.Count(10) {
		c := readClaim(d, s, found)
		if d.Err() != nil {
			return nil, d.Err()
		}
		if n := len(s.claims); n > 0 && s.claims[n-1].seq >= c.seq || c.closing || c.delay != 0 {
			return nil, fmt.Errorf("claim %d of session %v is in the wrong place", c.seq, s.id)
		}
		s.add(c)
	}
	for range d.Count(10) {
		c := readClaim(d, s, found)
		if d.Err() != nil {
			return nil, d.Err()
		}
		if n := len(s.closing); n > 0 && s.closing[n-1].seq >= c.seq || !c.granted || c.delay == 0 {
			return nil, fmt.Errorf("closing claim %d of session %v is in the wrong place", c.seq, s.id)
		}
		c.closing = true
		if found.leases {
			c.delayEnd = command.Millis(d.Uint())
		}
		s.closing = append(s.closing, c)
		s.weigh(c.size())
	}
	for range d.Count(9) {
		o := readOutcome(d)
		if s.numbered && len(s.outcomes) > 0 && s.outcomes[len(s.outcomes)-1].seq >= o.seq {
			return nil, fmt.Errorf("ended claim %d of session %v is in the wrong place", o.seq, s.id)
		}
		s.outcomes = append(s.outcomes, o)
		s.weight += uint32(o.names)
		s.weigh(o.size())
		s.rememberNonce(o.nonce, o.seq)
	}
	return s, d.Err()
}

func readClaim(d *command.Decoder, s *session, found *finds) *claim {
	c := &claim{session: s, seq: d.Uint(), spec: d.Spec(), nonce: d.Text()}
	c.at.Index, c.at.N, c.since, c.change = d.Uint(), d.Uint32(), command.WallMillis(d.Uint()), d.Uint()
	c.granted = d.Bool()
	if c.granted {
		c.order, c.token, c.delay = d.Uint(), command.Token(d.Uint()), command.Millis(d.Uint())
		found.granted = append(found.granted, c)
	} else {
		found.queued = append(found.queued, c)
	}
	if d.Err() == nil && !wellFormed(&c.spec) {
		d.Fail(fmt.Errorf("claim %d of session %v asks for what cannot be", c.seq, s.id))
	}
	c.print = fingerprint(&c.spec)
	c.links = c.one[:]
	if len(c.spec.Names) > 1 && d.Err() == nil {
		c.links = make([]link, len(c.spec.Names))
	}
	return c
}

func readOutcome(d *command.Decoder) outcome {
	return outcome{
		seq: d.Uint(), state: command.State(d.Byte()), code: command.Code(d.Byte()), names: d.Byte(),
		token: command.Token(d.Uint()), change: d.Uint(), print: d.Uint(),
		nonce: d.Text(), by: d.Text(), reason: d.Text(),
	}
}

// assemble puts the claims into the queues, or among the holders, of their names.
func (m *Machine) assemble(found *finds) error {
	slices.SortFunc(found.granted, func(a, b *claim) int { return cmp.Compare(a.order, b.order) })
	slices.SortFunc(found.queued, func(a, b *claim) int {
		return cmp.Or(cmp.Compare(a.at.Index, b.at.Index), cmp.Compare(a.at.N, b.at.N))
	})
	for _, c := range slices.Concat(found.granted, found.queued) {
		if err := m.attach(c); err != nil {
			return err
		}
	}
	slices.SortFunc(found.ended, func(a, b command.SessionID) int {
		return cmp.Compare(m.shards[shardOf(a)].ended.m[a].number, m.shards[shardOf(b)].ended.m[b].number)
	})
	m.lately.ids = found.ended
	clear(m.touched)
	m.touched = m.touched[:0]
	return nil
}

func (m *Machine) attach(c *claim) error {
	for i, text := range c.spec.Names {
		hash := hashText(0, text)
		n := m.find(text, hash)
		if n != nil && !n.matches(&c.spec) {
			return fmt.Errorf("claim %d of session %v does not fit its name", c.seq, c.session.id)
		}
		k := &c.links[i]
		*k = link{name: m.use(n, text, hash, &c.spec), claim: c}
		if c.granted {
			k.name.hold(k)
		} else {
			k.name.waiters.push(k)
		}
	}
	if c.granted {
		m.held.add(c)
	}
	switch {
	case c.closing:
		m.counts.Closing++
	case c.granted:
		m.counts.Holders++
	default:
		m.counts.Waiters++
	}
	return nil
}

// readRing reads the segments of a history and every record in them.
func readRing(r *ring, segments uint64, in *chunkReader, kind byte) error {
	for range segments {
		content, err := in.next(kind)
		if err != nil {
			return err
		}
		s := segment{bytes: []byte(content), filter: newFilter(r.segmentSize())}
		for b := s.bytes; len(b) > 0; {
			e, err := decodeRecord(b)
			if err != nil {
				return err
			}
			s.last = e.Number
			s.filter.add(recordHash(b))
			size, n := binary.Uvarint(b)
			b = b[n+int(size):]
		}
		r.segments = append(r.segments, s)
		r.size += len(s.bytes)
	}
	if r.size > r.limit {
		return fmt.Errorf("%d bytes of history, the limit is %d", r.size, r.limit)
	}
	return nil
}

func sortedIDs(t *table[command.SessionID, endedSession]) []command.SessionID {
	if len(t.m) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Keys(t.m), compareIDs)
}
