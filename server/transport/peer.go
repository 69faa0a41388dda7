package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Bounds and times of an outgoing stream.
const (
	normalLimit = 1 << 20  // bytes unsent
	urgentLimit = 64 << 10 // bytes unsent of votes, heartbeats and their answers
	// writeLimit bounds one write and about half the kernel's buffer: nothing can overtake what is
	// in there
	writeLimit = 128 << 10

	writeTimeout = 3 * time.Second
	pingEvery    = time.Second
	readTimeout  = 5 * time.Second // several pings

	redialMin = 50 * time.Millisecond
	redialMax = time.Second
)

// A peer is the stream from us to one other node.
type peer struct {
	Peer
	t    *Transport
	wake chan struct{} // there is something to write
	seen chan struct{} // the peer has dialled us, so it is up
	stop func()        // ends its stream; Transport.mu guards it

	// older says that the peer, as an acceptor, has proved the secret first, as older builds do.
	older atomic.Bool

	// Guarded by Transport.mu.
	asking  bool   // a handshake of Verify or Renew is in progress
	renewed uint64 // calls of Renew before the last handshake

	mu struct {
		sync.Mutex
		connected bool
		urgent    []byte // frames that go first
		normal    []byte
		writing   int // bytes of normal frames in the write in progress
		dropping  bool
		touched   bool // queued since the last flush

		clientAddress string
		host          string // where it was last found
		problem       string
		verdict       Verdict   // why the peer does not let us in
		conn          io.Closer // the stream that is up
	}
}

func newPeer(t *Transport, p Peer) *peer {
	n := &peer{Peer: p, t: t, wake: make(chan struct{}, 1), seen: make(chan struct{}, 1), stop: func() {}}
	n.mu.problem = "not connected yet"
	return n
}

// urgent reports whether a message goes first: such messages are few and small, and elections and
// quorum rounds wait for them. Raft tolerates that they overtake others.
func urgent(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp,
		raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgTimeoutNow:
		return true
	}
	return false
}

// queue encodes a message after those that wait. flush makes the writer see it.
func (p *peer) queue(group uint32, m *raftpb.Message) {
	if !p.enqueue(group, m) {
		p.t.cfg.Handler.Unreachable(p.Node)
	}
}

// enqueue returns false if the message is the first of a burst of dropped ones.
func (p *peer) enqueue(group uint32, m *raftpb.Message) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	buf, limit := &p.mu.normal, normalLimit-p.mu.writing
	if urgent(m) {
		buf, limit = &p.mu.urgent, urgentLimit
	}
	if p.mu.connected {
		if longer := appendMessage(*buf, frameMessage, group, m); len(longer) <= limit || len(*buf)+p.mu.writing == 0 {
			*buf = longer
			p.mu.touched = true
			return true
		}
	}
	first := !p.mu.dropping
	p.mu.dropping = true
	return !first
}

// appendMessage appends a frame with a message, preceded by a checksum: TCP's misses one in some
// 65,000 damaged packets. A message has no field that can't be encoded.
func appendMessage(dst []byte, kind frameKind, group uint32, m *raftpb.Message) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, byte(kind), 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, group)
	dst, err := proto.MarshalOptions{}.MarshalAppend(dst, m)
	if err != nil {
		panic(fmt.Sprintf("transport: encode %v: %v", m.GetType(), err))
	}
	body := start + frameHead + 4
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	binary.BigEndian.PutUint32(dst[body-4:], crc32.Checksum(dst[body:], castagnoli))
	return dst
}

// flush wakes the writer if something was queued.
func (p *peer) flush() {
	p.mu.Lock()
	touched := p.mu.touched
	p.mu.touched = false
	p.mu.Unlock()
	if touched {
		select {
		case p.wake <- struct{}{}:
		default: // already awake
		}
	}
}

// run keeps the stream up.
func (p *peer) run(ctx context.Context) {
	wait := redialMin
	for ctx.Err() == nil {
		began := time.Now()
		err := p.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		p.disconnected(err)
		if time.Since(began) > redialMax {
			wait = redialMin // it did last for a while
		}
		// Half of it is random, so that the nodes don't all connect at once.
		pause := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-ctx.Done():
		case <-pause.C:
			wait = min(2*wait, redialMax)
		case <-p.seen:
			wait = redialMin
		}
		pause.Stop()
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// serve dials and writes until the connection ends.
func (p *peer) serve(ctx context.Context) error {
	renewals := p.t.renewed()
	c, _, err := p.t.dial(ctx, p.Peer, purposeStream)
	if err != nil {
		return err
	}
	defer c.Close()
	p.connected(c)
	p.t.renew(p, renewals)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer c.Close()
	watcher.Go(func() { cancel(watch(c)) })
	err = p.write(ctx, c)
	if cause := context.Cause(ctx); cause != nil {
		return cause // the failed write is a consequence
	}
	return err
}

func (p *peer) connected(c *conn) {
	p.met(c.peer)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.connected, p.mu.dropping, p.mu.problem, p.mu.verdict, p.mu.conn = true, false, "", 0, c
	p.t.log.Info("peer connected", "peer", p.Name, "address", p.Address)
}

// reset ends the stream if it is up, and the wait for the next attempt.
func (p *peer) reset() {
	p.mu.Lock()
	if p.mu.conn != nil {
		p.mu.conn.Close()
	}
	p.mu.Unlock()
	p.dialledUs()
}

// dialledUs ends the wait for the next attempt.
func (p *peer) dialledUs() {
	select {
	case p.seen <- struct{}{}:
	default:
	}
}

// met records what a peer said about itself.
func (p *peer) met(id Identity) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.clientAddress = id.ClientAddress
}

// foundAt records where a connection to or from the peer, which has proved itself, came from.
func (p *peer) foundAt(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.host = host
}

// isAt reports whether the peer's connections are expected from a host.
func (p *peer) isAt(host string) bool {
	if named, _, err := net.SplitHostPort(p.Address); err == nil && named == host {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.host == host
}

// disconnected drops what is queued. A reason is logged when it is new.
func (p *peer) disconnected(err error) {
	p.mu.Lock()
	was, before := p.mu.connected, p.mu.problem
	p.mu.connected = false
	p.mu.urgent, p.mu.normal, p.mu.writing = nil, nil, 0
	p.mu.problem, p.mu.conn = reason(err), nil
	remote := errors.Is(err, ErrNotAdmitted) && errors.Is(err, ErrRefused)
	if remote {
		p.mu.verdict = VerdictOf(err)
	}
	p.mu.dropping = p.mu.dropping || was
	p.mu.Unlock()
	if was {
		p.t.cfg.Handler.Unreachable(p.Node)
	}
	if before != reason(err) {
		p.t.log.Warn("peer not connected", "peer", p.Name, "address", p.Address, "err", reason(err))
	}
	if remote {
		p.t.cfg.Handler.Rejected(p.Node, err)
	}
}

// reason returns an error's text without the addresses of the particular connection, so that the
// same problem reads the same.
func reason(err error) string {
	if e := new(net.OpError); errors.As(err, &e) {
		return e.Op + ": " + e.Err.Error()
	}
	return err.Error()
}

func (p *peer) status() PeerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PeerStatus{Peer: p.Peer, ClientAddress: p.mu.clientAddress, Reachable: p.mu.connected, Problem: p.mu.problem, Verdict: p.mu.verdict}
}
