package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

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

// stuckConn accepts nothing more once it is stuck.
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
	p := a.find(2)
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

// mute is a connection whose far end has disappeared silently.
type mute struct {
	net.Conn
	gone chan struct{}
}

func (c mute) Write(p []byte) (int, error) {
	select {
	case <-c.gone:
		return len(p), nil // lost
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
