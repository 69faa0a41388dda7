package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// A side is one node of a test, and the handler of its transport.
type side struct {
	*Transport
	t        *testing.T
	cfg      Config
	messages chan *raftpb.Message
	lost     chan uint64
	rejected chan error
	admit    func(Identity) error
	store    func(*raftpb.Message, io.Reader) error
}

func (s *side) Admit(id Identity) error {
	if s.admit == nil {
		return nil
	}
	return s.admit(id)
}

func (s *side) Receive(group uint32, msgs []*raftpb.Message) {
	for _, m := range msgs {
		s.messages <- m
	}
}

func (s *side) Rejected(_ uint64, err error) {
	select {
	case s.rejected <- err:
	default:
	}
}

func (s *side) Unreachable(node uint64) {
	select {
	case s.lost <- node:
	default:
	}
}

func (s *side) ReceiveSnapshot(_ context.Context, _ uint32, msg *raftpb.Message, r io.Reader) error {
	return s.store(msg, r)
}

// pair makes two nodes, 1 and 2, that know each other. change may alter a configuration; start runs them.
func pair(t *testing.T, change func(node uint64, s *side)) (a, b *side) {
	var ls [2]net.Listener
	for i := range ls {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ls[i] = l
	}
	var sides [2]*side
	for i := range sides {
		s := &side{t: t, messages: make(chan *raftpb.Message, 10_000), lost: make(chan uint64, 1000), rejected: make(chan error, 1)}
		s.cfg = Config{
			Self:     Identity{ClusterID: "c", Node: uint64(i + 1), Instance: [16]byte{byte(i + 1)}, Name: fmt.Sprintf("n%d", i+1), ClientAddress: fmt.Sprintf("client%d", i+1)},
			Peers:    []Peer{{Node: uint64(2 - i), Name: fmt.Sprintf("n%d", 2-i), Address: ls[1-i].Addr().String()}},
			Listener: ls[i], Secret: []byte("s"), Handler: s,
		}
		if change != nil {
			change(uint64(i+1), s)
		}
		tr, err := New(s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		s.Transport = tr
		sides[i] = s
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- tr.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	return sides[0], sides[1]
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came: %s", what)
		}
	}
}

func (s *side) connected() {
	s.t.Helper()
	eventually(s.t, "a connection", func() bool { return s.Peers()[0].Reachable })
}

func msg(kind raftpb.MessageType, from, to, index uint64) *raftpb.Message {
	return &raftpb.Message{Type: kind.Enum(), From: &from, To: &to, Index: &index}
}

func TestMessagesArriveInOrder(t *testing.T) {
	a, b := pair(t, nil)
	a.connected()
	const n = 2000
	for i := uint64(0); i < n; i += 4 {
		var batch []*raftpb.Message
		for j := range uint64(4) {
			m := msg(raftpb.MsgApp, 1, 2, i+j)
			m.Entries = []*raftpb.Entry{{Data: bytes.Repeat([]byte{byte(i)}, 10)}}
			batch = append(batch, m)
		}
		a.Send(1, batch)
	}
	for i := range uint64(n) {
		select {
		case m := <-b.messages:
			if m.GetIndex() != i || len(m.GetEntries()) != 1 {
				t.Fatalf("message %d came where %d belongs", m.GetIndex(), i)
			}
		case <-time.After(patience):
			t.Fatalf("message %d did not come", i)
		}
	}
	if p := a.Peers()[0]; p.ClientAddress != "client2" || p.Problem != "" {
		t.Errorf("peer: %+v", p)
	}
}

func TestWhatCannotBeSentIsReportedOnceABurst(t *testing.T) {
	a, _ := pair(t, func(node uint64, s *side) {
		if node == 1 {
			s.cfg.Dial = func(ctx context.Context, _ string) (net.Conn, error) { return nil, errors.New("no route") }
		}
	})
	for range 100 {
		a.Send(1, []*raftpb.Message{msg(raftpb.MsgApp, 1, 2, 1)})
	}
	if got := len(a.lost); got != 1 {
		t.Errorf("%d reports, want 1", got)
	}
	eventually(t, "the reason", func() bool { return strings.Contains(a.Peers()[0].Problem, "no route") })
}

// stuckConn takes nothing more once it is stuck.
type stuckConn struct {
	net.Conn
	stuck chan struct{}
	mu    sync.Mutex
	until time.Time
}

func (c *stuckConn) SetWriteDeadline(d time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = d
	return nil
}

func (c *stuckConn) Write(p []byte) (int, error) {
	select {
	case <-c.stuck:
	default:
		return c.Conn.Write(p)
	}
	c.mu.Lock()
	d := time.Until(c.until)
	c.mu.Unlock()
	time.Sleep(d)
	return 0, errors.New("i/o timeout")
}

func TestAPeerThatTakesNothingIsDroppedAndTheQueueIsBounded(t *testing.T) {
	stuck := make(chan struct{})
	a, b := pair(t, func(node uint64, s *side) {
		if node == 1 {
			first := true
			s.cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				c, err := dialTCP(ctx, address)
				if first && err == nil {
					first = false
					c = &stuckConn{Conn: c, stuck: stuck}
				}
				return c, err
			}
		}
	})
	a.connected()
	close(stuck)
	big := msg(raftpb.MsgApp, 1, 2, 1)
	big.Entries = []*raftpb.Entry{{Data: make([]byte, 100<<10)}}
	for range 100 {
		a.Send(1, []*raftpb.Message{big})
	}
	p := a.peers[2]
	p.mu.Lock()
	waiting := len(p.mu.normal) + p.mu.writing
	p.mu.Unlock()
	if waiting > normalLimit {
		t.Errorf("%d bytes wait", waiting)
	}
	if len(a.lost) != 1 {
		t.Errorf("%d reports of lost messages, want 1", len(a.lost))
	}
	a.Send(1, []*raftpb.Message{msg(raftpb.MsgHeartbeat, 1, 2, 7)})
	p.mu.Lock()
	if len(p.mu.urgent) == 0 {
		t.Error("a heartbeat found no room")
	}
	p.mu.Unlock()

	eventually(t, "the next connection", func() bool {
		a.Send(1, []*raftpb.Message{msg(raftpb.MsgApp, 1, 2, 99)})
		for len(b.messages) > 0 {
			if m := <-b.messages; m.GetIndex() == 99 {
				return true
			}
		}
		return false
	})
}

func TestHeartbeatsGoToTheFront(t *testing.T) {
	tr := &Transport{cfg: Config{Handler: &side{}}}
	p := newPeer(tr, Peer{Node: 2})
	p.mu.connected = true
	p.queue(1, msg(raftpb.MsgApp, 1, 2, 1))
	p.queue(1, msg(raftpb.MsgHeartbeat, 1, 2, 2))
	out := p.take(new(outgoing), false)
	want := appendMessage(nil, frameMessage, 1, msg(raftpb.MsgHeartbeat, 1, 2, 2))
	if len(out) != 2 || !bytes.Equal(out[0], want) {
		t.Errorf("out %x", out)
	}
}

func TestALongQueueIsWrittenInPartsOfWholeFrames(t *testing.T) {
	tr := &Transport{cfg: Config{Handler: &side{}}}
	p := newPeer(tr, Peer{Node: 2})
	p.mu.connected = true
	big := msg(raftpb.MsgApp, 1, 2, 1)
	big.Entries = []*raftpb.Entry{{Data: make([]byte, 50<<10)}}
	for range 10 {
		p.queue(1, big)
	}
	p.mu.connected = true
	var o outgoing
	var frames int
	for round := 0; ; round++ {
		if round == 2 {
			p.queue(1, msg(raftpb.MsgHeartbeat, 1, 2, 9))
		}
		out := p.take(&o, false)
		if len(out) == 0 {
			break
		}
		if urgent := len(out) == 2; urgent != (round == 2) {
			t.Errorf("round %d has %d buffers", round, len(out))
		}
		part := out[len(out)-1]
		if len(part) > writeLimit {
			t.Errorf("%d bytes in one write", len(part))
		}
		f := newConn(nopConn{Reader: bytes.NewReader(part)}).frames
		for {
			if _, _, err := f.next(frameLimit); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			frames++
		}
	}
	if frames != 10 {
		t.Errorf("%d frames came out of 10", frames)
	}
}

// mute is a connection whose far end has gone without a word.
type mute struct {
	net.Conn
	gone chan struct{}
}

func (c mute) Write(p []byte) (int, error) {
	select {
	case <-c.gone:
		return len(p), nil // into the void
	default:
		return c.Conn.Write(p)
	}
}

func TestAPeerThatDoesNotAnswerIsDialledAgain(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	var dials atomic.Int32
	a, _ := pair(t, func(node uint64, s *side) {
		if node == 1 {
			s.cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				c, err := dialTCP(ctx, address)
				if dials.Add(1) == 1 && err == nil {
					c = mute{c, gone}
				}
				return c, err
			}
		}
	})
	a.connected()
	close(gone)
	eventually(t, "the second dialling", func() bool { return dials.Load() > 1 })
	a.connected()
}

func TestABusyStreamIsNotTakenForASilentOne(t *testing.T) {
	t.Parallel()
	var dials atomic.Int32
	a, b := pair(t, func(node uint64, s *side) {
		if node == 1 {
			s.cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				dials.Add(1)
				return dialTCP(ctx, address)
			}
		}
	})
	a.connected()
	for began := time.Now(); time.Since(began) < readTimeout+pingEvery; {
		a.Send(1, []*raftpb.Message{msg(raftpb.MsgApp, 1, 2, 1)})
		select {
		case <-b.messages:
		case <-time.After(patience):
			t.Fatal("nothing comes")
		}
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("dialled %d times", n)
	}
}

func TestRefusalsCarryTheirReason(t *testing.T) {
	cases := map[string]struct {
		change func(node uint64, s *side)
		reason string
	}{
		"another cluster": {func(n uint64, s *side) { s.cfg.Self.ClusterID = fmt.Sprint("c", n) }, "cluster c2, not"},
		"another secret":  {func(n uint64, s *side) { s.cfg.Secret = []byte{byte(n)} }, "secret differs"},
		"no secret there": {func(n uint64, s *side) {
			if n == 2 {
				s.cfg.Secret = nil
			}
		}, "secret differs"},
		"not a member": {func(n uint64, s *side) {
			if n == 2 {
				s.cfg.Peers = nil
			}
		}, "not a member"},
		"two addresses mixed up": {func(n uint64, s *side) {
			if n == 1 {
				s.cfg.Peers[0].Node = 9
			}
		}, "mixed up"},
		"another instance": {func(n uint64, s *side) {
			if n == 2 {
				s.admit = func(id Identity) error { return NotAdmitted(fmt.Sprintf("known with %x", id.Instance[:1])) }
			}
		}, "known with 01"},
		"a broken disk there": {func(n uint64, s *side) {
			if n == 2 {
				s.admit = func(id Identity) error { return errors.New("disk broken") }
			}
		}, "disk broken"},
		"the peer is another instance": {func(n uint64, s *side) {
			if n == 1 {
				s.admit = func(id Identity) error { return NotAdmitted(fmt.Sprintf("known with %x", id.Instance[:1])) }
			}
		}, "known with 02"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a, _ := pair(t, c.change)
			peer := a.cfg.Peers[0].Node
			err := a.Ask(t.Context(), peer)
			if err == nil || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("err = %v, want %q", err, c.reason)
			}
			if name == "another instance" && (!errors.Is(err, ErrNotAdmitted) || !errors.Is(err, ErrRefused)) {
				t.Errorf("err = %v, want ErrNotAdmitted", err)
			}
			if name != "another instance" && errors.Is(err, ErrNotAdmitted) {
				t.Errorf("err = %v must not end a node", err)
			}
			eventually(t, "the reason in the status", func() bool { return strings.Contains(a.Peers()[0].Problem, c.reason) })
		})
	}
}

func TestAnAskIsAnsweredAndANodeIsToldThatItIsRejected(t *testing.T) {
	a, _ := pair(t, nil)
	if err := a.Ask(t.Context(), 2); err != nil {
		t.Error(err)
	}
	a, _ = pair(t, func(n uint64, s *side) {
		if n == 2 {
			s.admit = func(Identity) error { return NotAdmitted("replaced") }
		}
	})
	select {
	case err := <-a.rejected:
		if !strings.Contains(err.Error(), "replaced") {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("not told")
	}
}

// TestStrangersAreClosed sends what no node sends. The connection must end and nothing large be
// allocated, and the peers must still be served.
func TestStrangersAreClosed(t *testing.T) {
	a, b := pair(t, nil)
	for name, bytes := range map[string]string{
		"http":                "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"4 GiB prefix":        preamble + "\xff\xff\xff\xff\x02",
		"a long hello":        preamble + "\x00\x40\x00\x00\x02",
		"empty frame":         preamble + "\x00\x00\x00\x00\x02",
		"no JSON":             preamble + "\x00\x00\x00\x03\x02{x",
		"wrong kind":          preamble + "\x00\x00\x00\x01\x06",
		"a refusal by admit":  preamble + "\x00\x00\x00\x03\x06\x01x",
		"a version from afar": preamble + string(appendFrame(nil, frameHello, []byte(`{"version":99}`))),
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", b.cfg.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, bytes); err != nil {
				t.Fatal(err)
			}
			c.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
				t.Errorf("still open: %v", err)
			}
		})
	}
	a.connected()
	a.Send(1, []*raftpb.Message{msg(raftpb.MsgApp, 1, 2, 5)})
	select {
	case m := <-b.messages:
		if m.GetIndex() != 5 {
			t.Error(m)
		}
	case <-time.After(patience):
		t.Error("peers are not served any more")
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func TestAFrameLongerThanItsLimitIsNotAllocated(t *testing.T) {
	f := newConn(nopConn{Reader: strings.NewReader("\xff\xff\xff\xff\x06")}).frames
	if _, _, err := f.next(frameLimit); err == nil || cap(f.buf) != 0 {
		t.Errorf("err %v, %d bytes allocated", err, cap(f.buf))
	}
}

type nopConn struct {
	net.Conn
	io.Reader
}

func (c nopConn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

func TestAPeerMaySpeakOnlyForItself(t *testing.T) {
	tr := &Transport{cfg: Config{Self: Identity{Node: 2}}}
	for name, m := range map[string]*raftpb.Message{
		"another sender":             msg(raftpb.MsgApp, 3, 2, 1),
		"another receiver":           msg(raftpb.MsgApp, 1, 3, 1),
		"a local message":            msg(raftpb.MsgStorageAppendResp, 1, 2, 1),
		"a snapshot in the stream":   msg(raftpb.MsgSnap, 1, 2, 1),
		"a check of the quorum":      msg(raftpb.MsgCheckQuorum, 1, 2, 1),
		"told that it's unreachable": msg(raftpb.MsgUnreachable, 1, 2, 1),
	} {
		payload := appendMessage(nil, frameMessage, 1, m)[frameHead:]
		if _, _, err := tr.decode(frameMessage, frameMessage, payload, 1); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	payload := appendMessage(nil, frameMessage, 7, msg(raftpb.MsgApp, 1, 2, 1))[frameHead:]
	if g, _, err := tr.decode(frameMessage, frameMessage, payload, 1); err != nil || g != 7 {
		t.Errorf("group %d, %v", g, err)
	}
}

func FuzzDecode(f *testing.F) {
	tr := &Transport{cfg: Config{Self: Identity{Node: 2}}}
	f.Add(appendMessage(nil, frameMessage, 1, msg(raftpb.MsgApp, 1, 2, 1))[frameHead:])
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, m, err := tr.decode(frameMessage, frameMessage, b, 1); err == nil && m.GetFrom() != 1 {
			t.Errorf("from %d", m.GetFrom())
		}
	})
}
