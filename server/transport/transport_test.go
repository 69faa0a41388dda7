package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
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
	admitHow func(id Identity, dialled bool)
	store    func(*raftpb.Message, io.Reader) error
}

func (s *side) Admit(id Identity, dialled bool) error {
	if s.admitHow != nil {
		s.admitHow(id, dialled)
	}
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

// pair makes two nodes, 1 and 2, that know each other. change may modify a configuration; start
// runs them.
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
			Self:     Identity{ClusterID: "c", Node: uint64(i + 1), Instance: [16]byte{byte(i + 1)}, Name: fmt.Sprintf("n%d", i+1), Level: 2, ClientAddress: fmt.Sprintf("client%d", i+1)},
			Peers:    []Peer{{Node: uint64(2 - i), Name: fmt.Sprintf("n%d", 2-i), Address: ls[1-i].Addr().String()}},
			Listener: ls[i], Secrets: only("s"), Handler: s, Refused: new(RefusalCounter),
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

// only returns just this secret.
func only(secret string) func() [][]byte { return func() [][]byte { return [][]byte{[]byte(secret)} } }

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

func TestRefusalsCarryTheirReason(t *testing.T) {
	cases := map[string]struct {
		change func(node uint64, s *side)
		reason string
	}{
		"another cluster": {func(n uint64, s *side) { s.cfg.Self.ClusterID = fmt.Sprint("c", n) }, "cluster c2, not"},
		"another secret":  {func(n uint64, s *side) { s.cfg.Secrets = only(fmt.Sprint(n)) }, "secret differs"},
		"no secret there": {func(n uint64, s *side) {
			if n == 2 {
				s.cfg.Secrets = nil
			}
		}, "has no cluster secret"},
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
				s.admit = func(id Identity) error { return NotAdmitted(Replaced, fmt.Sprintf("known with %x", id.Instance[:1])) }
			}
		}, "known with 01"},
		"a broken disk there": {func(n uint64, s *side) {
			if n == 2 {
				s.admit = func(id Identity) error { return errors.New("disk broken") }
			}
		}, "disk broken"},
		"the peer is another instance": {func(n uint64, s *side) {
			if n == 1 {
				s.admit = func(id Identity) error { return NotAdmitted(Replaced, fmt.Sprintf("known with %x", id.Instance[:1])) }
			}
		}, "known with 02"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a, _ := pair(t, c.change)
			peer := a.cfg.Peers[0].Node
			_, err := a.Ask(t.Context(), peer)
			if err == nil || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("err = %v, want %q", err, c.reason)
			}
			if name == "another instance" && (!errors.Is(err, ErrNotAdmitted) || !errors.Is(err, ErrRefused) || VerdictOf(err) != Replaced) {
				t.Errorf("err = %v with verdict %d, want ErrNotAdmitted", err, VerdictOf(err))
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
	if id, err := a.Ask(t.Context(), 2); err != nil || id.Name != "n2" {
		t.Errorf("%+v, %v", id, err)
	}
	a, _ = pair(t, func(n uint64, s *side) {
		if n == 2 {
			s.admit = func(Identity) error { return NotAdmitted(OlderCopy, "replaced") }
		}
	})
	select {
	case err := <-a.rejected:
		if !strings.Contains(err.Error(), "replaced") || VerdictOf(err) != OlderCopy || a.Peers()[0].Verdict != OlderCopy {
			t.Errorf("%v with verdict %d, in the status %d", err, VerdictOf(err), a.Peers()[0].Verdict)
		}
	case <-time.After(patience):
		t.Error("not told")
	}
}

// What a handshake reports may change: then there is another one, and the streams continue only if
// both sides still admit each other.
func TestRenewShakesHandsAgain(t *testing.T) {
	var dialled, knocked atomic.Int64
	var refuse atomic.Bool
	a, b := pair(t, func(n uint64, s *side) {
		if n == 2 {
			s.admitHow = func(_ Identity, how bool) {
				if how {
					dialled.Add(1)
				} else {
					knocked.Add(1)
				}
			}
			s.admit = func(Identity) error {
				if refuse.Load() {
					return NotAdmitted(OtherBirth, "of another cluster")
				}
				return nil
			}
		}
	})
	up := func() bool { return a.Peers()[0].Reachable && b.Peers()[0].Reachable }
	eventually(t, "both streams", up)
	for range 3 {
		was := knocked.Load()
		a.Renew()
		eventually(t, "b was asked", func() bool { return knocked.Load() > was })
	}
	for range 3 {
		was := dialled.Load()
		b.Renew()
		eventually(t, "b has asked", func() bool { return dialled.Load() > was })
	}
	if !up() || len(a.lost)+len(b.lost) > 0 {
		t.Error("a stream has ended")
	}
	refuse.Store(true)
	a.Renew()
	eventually(t, "both streams have ended", func() bool { return !a.Peers()[0].Reachable && !b.Peers()[0].Reachable })
}

// The node at an address is asked without ending the stream that is up.
func TestVerifyAsksAndLeavesTheStreamAlone(t *testing.T) {
	var dialled atomic.Int64
	a, _ := pair(t, func(n uint64, s *side) {
		if n == 1 {
			s.admitHow = func(_ Identity, how bool) {
				if how {
					dialled.Add(1)
				}
			}
		}
	})
	eventually(t, "the stream", func() bool { return a.Peers()[0].Reachable })
	was := dialled.Load()
	a.Verify(2)
	eventually(t, "the peer was asked", func() bool { return dialled.Load() > was })
	if len(a.lost) > 0 || !a.Peers()[0].Reachable {
		t.Error("the stream has ended")
	}
}

// A node of a build before the verdicts understands only Unwanted and the words.
func TestAnOlderPeerIsToldInItsOwnCode(t *testing.T) {
	for v, want := range map[Verdict]Verdict{Removed: Unwanted, Replaced: Unwanted, Unwanted: Unwanted, OlderCopy: OlderCopy} {
		if got := codeFor(NotAdmitted(v, "x"), &Identity{}); got != byte(want) {
			t.Errorf("verdict %d is told as %d, want %d", v, got, want)
		}
		if got := codeFor(NotAdmitted(v, "x"), &Identity{Level: 2}); got != byte(v) {
			t.Errorf("verdict %d is told as %d to a newer peer", v, got)
		}
	}
}

// Nodes of builds before the verdicts expressed them in words, under one number.
func TestAnOlderPeersWordsAreUnderstood(t *testing.T) {
	for text, want := range map[string]Verdict{
		`member "n3" was removed from the cluster: delete its data directory`:          Removed,
		"node n3 is known here with the data directory 01, and comes with 02: put ...": Replaced,
		`there is no member "n4": add it first (lockstep member add)`:                  Unwanted,
	} {
		e, _ := refusal(append([]byte{1}, text...)).(*refusedError)
		if got := e.received(); got != want {
			t.Errorf("%s: verdict %d, want %d", text, got, want)
		}
	}
	for code, want := range map[byte]Verdict{refusedOther: 0, refusedAudit: 0, byte(OtherBirth): OtherBirth, 99: 99} {
		e, _ := refusal([]byte{code, 'x'}).(*refusedError)
		if got := e.received(); got != want {
			t.Errorf("code %d: verdict %d, want %d", code, got, want)
		}
	}
}

func TestAResetStreamIsDialledAgainAndTellsWhatIsTrueNow(t *testing.T) {
	var birth atomic.Value
	birth.Store("")
	told := make(chan Identity, 100)
	a, _ := pair(t, func(n uint64, s *side) {
		self := s.cfg.Self
		s.cfg.Present = func() Identity { self := self; self.Birth = birth.Load().(string); return self }
		if n == 2 {
			s.admit = func(id Identity) error { told <- id; return nil }
		}
	})
	a.connected()
	birth.Store("b1")
	a.Reset(2)
	eventually(t, "the birth at the peer", func() bool { return (<-told).Birth == "b1" })
	a.connected()
}

// TestStrangersAreClosed sends what no node sends. The connection must end without a large
// allocation, and the peers must still be served.
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

func TestADamagedMessageEndsTheStream(t *testing.T) {
	tr := &Transport{cfg: Config{Self: Identity{Node: 2}}}
	payload := appendMessage(nil, frameMessage, 7, msg(raftpb.MsgApp, 1, 2, 1))[frameHead:]
	for i := range payload {
		payload[i] ^= 1
		if _, _, err := tr.decode(frameMessage, frameMessage, payload, 1); err == nil {
			t.Errorf("a bit flipped at %d was not found", i)
		}
		payload[i] ^= 1
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
