package replica

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// TestMain replaces the source of Raft's election jitter, so that a failing test fails again.
func TestMain(m *testing.M) {
	rand.Reader = &fixedReader{splitmix{1}}
	os.Exit(m.Run())
}

// reseed makes what follows a function of seed alone.
func reseed(seed uint64) { rand.Reader = &fixedReader{splitmix{seed}} }

type fixedReader struct{ rng splitmix }

func (f *fixedReader) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(f.rng.next())
	}
	return len(b), nil
}

// splitmix is a small generator with the same numbers on every platform.
type splitmix struct{ state uint64 }

func (s *splitmix) next() uint64 {
	s.state += 0x9e3779b97f4a7c15
	z := s.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

const (
	ms      = lead.Time(time.Millisecond)
	second  = lead.Time(time.Second)
	wall0   = command.WallMillis(1_767_225_600_000) // 2026-01-01
	ttl     = command.Millis(10_000)
	latency = ms // of the network and of the disk
)

// A parcel is a message on the network.
type parcel struct {
	at       lead.Time
	from, to uint64
	message  *raftpb.Message
}

// A disk is what a host keeps across a crash.
type disk struct {
	hard     *raftpb.HardState
	meta     *raftpb.SnapshotMetadata
	entries  []*raftpb.Entry
	state    map[uint64][]byte // by index of the snapshot
	unsynced []sync
	writing  []byte
	stuck    bool
}

type sync struct {
	at       lead.Time
	append   *raftpb.Message
	snapshot *SnapshotPart
}

// A host is one node of the cluster: a replica, its disk and its clients' mail.
type host struct {
	id      uint64
	r       *Replica // nil: crashed
	disk    disk
	paused  bool
	wake    lead.Time
	inputs  []Input
	replies []lead.Reply
	events  []command.Event
	applied []Applied
	forget  []Forget
	exit    string
	sent    int // messages
	wrote   int // MsgStorageAppend
}

// A cluster is a set of hosts with a network and one clock, on one goroutine.
type cluster struct {
	t       testing.TB
	now     lead.Time
	hosts   []*host
	network []parcel
	cut     func(from, to uint64) bool
	lose    func(*raftpb.Message) bool // nil: none
	tune    func(*Config)
	tag     uint64
	stream  lead.StreamID
	wall    command.WallMillis
	// diskTime is how long a write takes.
	diskTime lead.Time
	// snapshotTime is the additional time that it takes to make a snapshot durable.
	snapshotTime lead.Time
	// transfer is how long it takes to send a snapshot to a peer.
	transfer lead.Time
}

func newCluster(t testing.TB, n int, tune func(*Config)) *cluster {
	t.Helper()
	c := &cluster{t: t, now: second, cut: func(uint64, uint64) bool { return false }, tune: tune, wall: wall0, diskTime: latency}
	meta := &raftpb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{}}
	for id := range uint64(n) {
		meta.ConfState.Voters = append(meta.ConfState.Voters, id+1)
	}
	for id := range uint64(n) {
		h := &host{id: id + 1, disk: disk{meta: meta, state: map[uint64][]byte{}}}
		c.hosts = append(c.hosts, h)
		c.start(h)
	}
	return c
}

func (c *cluster) host(id uint64) *host { return c.hosts[id-1] }

// start starts a host from its disk.
func (c *cluster) start(h *host) {
	c.t.Helper()
	m := machine.New()
	if b, ok := h.disk.state[h.disk.meta.GetIndex()]; ok {
		var err error
		if m, err = machine.Restore(bytes.NewReader(b)); err != nil {
			c.t.Fatalf("restoring snapshot %d: %v", h.disk.meta.GetIndex(), err)
		}
	}
	cfg := Config{
		ID: h.id, Rand: &fixedReader{splitmix{h.id + uint64(c.now)}}, Built: wall0 - 1, AnyLevel: true,
		Recovered: Recovered{HardState: h.disk.hard, Snapshot: h.disk.meta, Entries: slices.Clone(h.disk.entries), Machine: m},
	}
	if c.tune != nil {
		c.tune(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	h.r, h.wake, h.inputs, h.exit, h.paused = r, c.now, nil, "", false
}

// crash stops a host. Anything that its disk had not synced is lost.
func (c *cluster) crash(h *host) {
	h.r, h.disk.unsynced, h.disk.writing = nil, nil, nil
	h.disk.stuck = false
}

// run advances the time by d.
func (c *cluster) run(d lead.Time) {
	c.t.Helper()
	for end := c.now + d; c.now < end; {
		c.tick()
	}
}

// until advances the time until done, and fails the test after limit.
func (c *cluster) until(limit lead.Time, what string, done func() bool) {
	c.t.Helper()
	for end := c.now + limit; !done(); {
		if c.now >= end {
			c.t.Fatalf("after %v: no %s; %s", time.Duration(limit), what, c.describe())
		}
		c.tick()
	}
}

func (c *cluster) describe() (s string) {
	for _, h := range c.hosts {
		if h.r != nil {
			s += fmt.Sprintf("\n%d: %+v", h.id, h.r.Status())
		}
	}
	return s
}

// tick advances the time by one millisecond.
func (c *cluster) tick() {
	c.now += ms
	c.wall++
	due := c.network
	c.network = nil
	for _, p := range due {
		if p.at <= c.now {
			c.arrive(p)
		} else {
			c.network = append(c.network, p)
		}
	}
	for _, h := range c.hosts {
		c.sync(h)
		if h.r != nil && !h.paused && (len(h.inputs) > 0 || h.wake <= c.now) {
			c.turn(h)
		}
	}
}

func (c *cluster) arrive(p parcel) {
	to := c.host(p.to)
	if to.r == nil || c.cut(p.from, p.to) || c.lose != nil && c.lose(p.message) {
		if p.message.GetType() == raftpb.MsgSnap && c.host(p.from).r != nil {
			c.host(p.from).inputs = append(c.host(p.from).inputs, SnapshotSent{To: p.to})
		}
		return
	}
	if p.message.GetType() != raftpb.MsgSnap {
		to.inputs = append(to.inputs, Message{p.message})
		return
	}
	meta := p.message.GetSnapshot().GetMetadata()
	from := c.host(p.from)
	b, ok := from.disk.state[meta.GetIndex()]
	if !ok {
		from.inputs = append(from.inputs, SnapshotSent{To: p.to, Unreadable: meta.GetIndex()})
		return
	}
	from.inputs = append(from.inputs, SnapshotSent{To: p.to, OK: true})
	m, err := machine.Restore(bytes.NewReader(b))
	if err != nil {
		c.t.Fatalf("snapshot %d from %d: %v", meta.GetIndex(), p.from, err)
	}
	to.disk.state[meta.GetIndex()] = b
	to.inputs = append(to.inputs, SnapshotReceived{Message: p.message, Machine: m})
}

// sync makes durable what has been in flight long enough.
func (c *cluster) sync(h *host) {
	for len(h.disk.unsynced) > 0 && h.disk.unsynced[0].at <= c.now && !h.disk.stuck {
		s := h.disk.unsynced[0]
		h.disk.unsynced = h.disk.unsynced[1:]
		if s.snapshot != nil {
			h.inputs = append(h.inputs, SnapshotWritten{s.snapshot.Metadata.GetIndex()})
			h.disk.meta = s.snapshot.Metadata
			continue
		}
		h.disk.write(s.append)
		h.inputs = append(h.inputs, Persisted{1})
	}
}

func (d *disk) write(m *raftpb.Message) {
	if snap := m.GetSnapshot(); !raft.IsEmptySnap(snap) {
		d.meta, d.entries = snap.GetMetadata(), nil
	}
	if es := m.GetEntries(); len(es) > 0 {
		d.entries = slices.DeleteFunc(d.entries, func(e *raftpb.Entry) bool { return e.GetIndex() >= es[0].GetIndex() })
		d.entries = append(d.entries, es...)
	}
	if m.Term != nil {
		d.hard = &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	}
}

func (c *cluster) turn(h *host) {
	inputs := h.inputs
	h.inputs = nil
	for _, in := range inputs {
		h.r.Step(in)
	}
	out := h.r.Turn(c.now, c.wall)
	h.wake = out.Wake
	for _, m := range out.Messages {
		h.sent++
		at := c.now + latency
		if m.GetType() == raftpb.MsgSnap {
			at += c.transfer
		}
		c.network = append(c.network, parcel{at, h.id, m.GetTo(), proto.Clone(m).(*raftpb.Message)})
	}
	h.wrote += len(out.Appends)
	for _, m := range out.Appends {
		h.disk.unsynced = append(h.disk.unsynced, sync{at: c.now + c.diskTime, append: m})
	}
	if p := out.Snapshot; p != nil {
		if p.First {
			h.disk.writing = nil
		}
		h.disk.writing = append(h.disk.writing, p.Chunk...)
		if p.Last {
			h.disk.state[p.Metadata.GetIndex()] = h.disk.writing
			h.disk.unsynced = append(h.disk.unsynced, sync{at: c.now + c.diskTime + c.snapshotTime, snapshot: p})
		}
	}
	if out.CompactTo != 0 {
		h.disk.entries = slices.DeleteFunc(h.disk.entries, func(e *raftpb.Entry) bool { return e.GetIndex() <= out.CompactTo })
	}
	h.replies = append(h.replies, out.Replies...)
	h.events = append(h.events, out.Events...)
	h.applied = append(h.applied, out.Applied...)
	if out.Forget != 0 {
		h.forget = append(h.forget, out.Forget)
	}
	if out.Exit != "" {
		h.exit = out.Exit
	}
}

// isolate cuts hosts off from the others.
func (c *cluster) isolate(ids ...uint64) {
	c.cut = func(from, to uint64) bool { return slices.Contains(ids, from) != slices.Contains(ids, to) }
}

func (c *cluster) heal() { c.cut = func(uint64, uint64) bool { return false } }

// leader waits for a host that serves, not counting the excluded ones.
func (c *cluster) leader(but ...uint64) *host {
	c.t.Helper()
	var found *host
	c.until(10*second, "leader", func() bool {
		for _, h := range c.hosts {
			if h.r != nil && !h.paused && !slices.Contains(but, h.id) && h.r.Status().Serving && h.r.Status().Counts.NextToken != 0 {
				found = h
			}
		}
		return found != nil
	})
	return found
}

// lead makes the host with this id the leader.
func (c *cluster) lead(id uint64) *host {
	c.t.Helper()
	c.leader()
	c.until(10*second, fmt.Sprintf("leader %d", id), func() bool {
		for _, h := range c.hosts {
			if h.r != nil && h.r.Status().Role == Leader && h.id != id {
				h.inputs = append(h.inputs, HandOver{id})
			}
		}
		return c.host(id).r.Status().Serving
	})
	return c.host(id)
}

// take removes and returns the replies that pick selects.
func (h *host) take(pick func(lead.Reply) bool) (taken []lead.Reply) {
	h.replies = slices.DeleteFunc(h.replies, func(r lead.Reply) bool {
		if pick(r) {
			taken = append(taken, r)
			return true
		}
		return false
	})
	return taken
}

func (c *cluster) newStream() lead.StreamID { c.stream++; return c.stream }

// send gives a request to a host and returns its tag.
func (c *cluster) send(h *host, q lead.Request) uint64 {
	c.tag++
	q.Tag, q.Received = c.tag, c.now
	h.inputs = append(h.inputs, Asked{q})
	return c.tag
}

// call sends a request and waits for its answer.
func (c *cluster) call(h *host, q lead.Request) lead.Answer {
	c.t.Helper()
	return c.answer(h, c.send(h, q))
}

func (c *cluster) answer(h *host, tag uint64) (a lead.Answer) {
	c.t.Helper()
	c.until(5*second, fmt.Sprintf("answer to %d from %d", tag, h.id), func() bool {
		for _, r := range h.take(func(r lead.Reply) bool { return r.Tag == tag }) {
			a = r.Answer
		}
		return a != nil
	})
	return a
}

// A client is a session that is bound to a stream.
type client struct {
	c      *cluster
	host   *host
	stream lead.StreamID
	id     command.SessionID
	secret command.Secret
	seq    uint64
	number uint64 // of the attachment
	term   uint64 // of the leader that it is attached to
}

// open opens a session with its own stream.
func (c *cluster) open(h *host, ttl command.Millis) *client {
	c.t.Helper()
	k := &client{c: c, host: h, stream: c.newStream(), number: 1}
	_, _ = io.ReadFull(rand.Reader, k.secret[:]) // the fixed reader never returns an error
	var random [8]byte
	_, _ = io.ReadFull(rand.Reader, random[:])
	a := c.call(h, lead.Request{Stream: k.stream, Body: lead.Open{TTL: ttl, Secret: k.secret, Random: random, ClientNumbered: true, Attach: true}})
	opened, ok := a.(lead.Opened)
	if !ok {
		c.t.Fatalf("open answered %+v", a)
	}
	k.id, k.term = opened.Session, h.r.term
	return k
}

func (k *client) request(b lead.Body) lead.Request {
	return lead.Request{Stream: k.stream, Session: k.id, Body: b}
}

func (k *client) call(b lead.Body) lead.Answer { k.c.t.Helper(); return k.c.call(k.host, k.request(b)) }

func (k *client) send(b lead.Body) uint64 { return k.c.send(k.host, k.request(b)) }

// spec asks for one name, waiting as long as the session lives.
func spec(name string) command.Spec { return command.Spec{Names: []string{name}} }

func (k *client) acquireBody(s command.Spec) lead.Acquire {
	k.seq++
	return lead.Acquire{Claim: command.Acquire{Seq: k.seq, Spec: s}}
}

// acquire asks for a name and returns the state in the answer.
func (k *client) acquire(name string) command.ClaimStatus {
	k.c.t.Helper()
	a := k.call(k.acquireBody(spec(name)))
	claimed, ok := a.(lead.Claimed)
	if !ok {
		k.c.t.Fatalf("acquire %s answered %+v", name, a)
	}
	return claimed.Claim
}

// attach binds the session to a new stream at a host.
func (k *client) attach(h *host, seen uint64) (lead.Answer, []command.ClaimStatus) {
	k.c.t.Helper()
	k.host, k.stream, k.term = h, k.c.newStream(), h.r.term
	k.number++
	tag := k.send(lead.Attach{Secret: k.secret, Number: k.number, Seen: seen})
	a := k.c.answer(h, tag)
	return a, k.changes()
}

// changes returns the changes that were reported to the client on its stream.
func (k *client) changes() (claims []command.ClaimStatus) {
	for _, r := range k.host.take(func(r lead.Reply) bool {
		_, ok := r.Answer.(lead.Changed)
		return ok && r.Stream == k.stream && r.Session == k.id
	}) {
		claims = append(claims, r.Answer.(lead.Changed).Claim)
	}
	return claims
}

// over returns the report of the session's end.
func (k *client) over() (e lead.Ended, ok bool) {
	for _, r := range k.host.take(func(r lead.Reply) bool {
		_, is := r.Answer.(lead.Ended)
		return is && r.Stream == k.stream && r.Session == k.id
	}) {
		return r.Answer.(lead.Ended), true
	}
	return e, false
}

// addLearner makes a host a learner, without the member table. The host is not running yet.
func (c *cluster) addLearner(leader *host, id uint64) {
	c.t.Helper()
	change := &raftpb.ConfChange{Type: raftpb.ConfChangeAddLearnerNode.Enum(), NodeId: new(id)}
	if err := leader.r.raft.ProposeConfChange(change); err != nil {
		c.t.Fatal(err)
	}
	c.until(5*second, "learner", func() bool { return leader.r.isLearner(id) })
	meta := &raftpb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}}
	c.hosts = append(c.hosts, &host{id: id, disk: disk{meta: meta, state: map[uint64][]byte{}}})
}
