package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// accept serves the connections that peers make.
func (t *Transport) accept(ctx context.Context) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	defer context.AfterFunc(ctx, func() { t.cfg.Listener.Close() })()
	defer t.cfg.Listener.Close()
	for {
		raw, err := t.cfg.Listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				raw.Close()
			}
			return nil
		}
		if e := net.Error(nil); errors.As(err, &e) && !errors.Is(err, net.ErrClosed) {
			// Out of file descriptors, for example: it may pass.
			t.log.Warn("accept peer", "err", err)
			if !sleep(ctx, 100*time.Millisecond) {
				return nil
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("transport: accept: %w", err)
		}
		host := hostOf(raw.RemoteAddr())
		g := t.lobby.enter(raw, host, t.peersAt(host))
		if g == nil { // peers dial again
			t.count(Crowded)
			raw.Close()
			continue
		}
		conns.Go(func() { t.serve(ctx, raw, g) })
	}
}

// hostOf returns where a connection comes from, without the port.
func hostOf(a net.Addr) string {
	if host, _, err := net.SplitHostPort(a.String()); err == nil {
		return host
	}
	return a.String()
}

// peersAt counts the peers whose connections come from a host.
func (t *Transport) peersAt(host string) (n int) {
	for _, p := range t.table.Load().order {
		if p.isAt(host) {
			n++
		}
	}
	return n
}

// serve performs the handshake and does what the connection is for.
func (t *Transport) serve(ctx context.Context, raw net.Conn, g *guest) {
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	c := newConn(raw)
	c.renewals, c.guest = t.renewed(), g
	err := raw.SetDeadline(time.Now().Add(greetingTimeout))
	if err == nil {
		err = t.receive(c)
	}
	if c.guest == nil { // it has proved the secret
		defer func() { <-t.incoming }()
	} else if !t.lobby.leave(g) {
		err = failure{errors.New("the handshake took too long, and others are waiting"), Crowded}
	}
	if err != nil {
		t.noise(ctx, raw, err)
		return
	}
	c.grow()
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return
	}
	p := t.find(c.peer.Node)
	if p == nil { // it asked to join, or was just removed
		return
	}
	p.met(c.peer)
	p.foundAt(g.host)
	switch c.purpose {
	case purposeStream:
		p.dialledUs()
		t.renew(p, c.renewals)
		t.readStream(ctx, c)
	case purposeSnapshot:
		t.readSnapshot(ctx, c)
	case purposeAudit:
		t.answerAudit(ctx, c)
	}
}

// noise counts a failed handshake, and logs one every 10 s: strangers may connect often.
func (t *Transport) noise(ctx context.Context, c net.Conn, err error) {
	if f, ok := errors.AsType[failure](err); ok && ctx.Err() == nil {
		t.count(f.why)
	}
	t.mu.Lock()
	quiet := ctx.Err() != nil || time.Since(t.mu.noise) < 10*time.Second
	if !quiet {
		t.mu.noise = time.Now()
	}
	t.mu.Unlock()
	if !quiet {
		t.log.Warn("peer connection rejected", "from", c.RemoteAddr().String(), "err", err)
	}
}

// readStream hands over what a peer sends until the stream ends. A new stream from the same peer
// ends the older one: the peer has abandoned that.
func (t *Transport) readStream(ctx context.Context, c *conn) {
	t.mu.Lock()
	if old := t.mu.streams[c.peer.Node]; old != nil {
		old.Close()
	}
	t.mu.streams[c.peer.Node] = c
	if t.find(c.peer.Node) == nil { // removed since the handshake
		c.Close()
	}
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.mu.streams[c.peer.Node] == c {
			delete(t.mu.streams, c.peer.Node)
		}
	}()
	err := t.readMessages(c)
	if ctx.Err() == nil {
		t.log.Debug("stream of peer ended", "peer", c.peer.Name, "err", err)
	}
}

// batchLimit bounds the messages handed over at once.
const batchLimit = 256

// readMessages reads a frame, then all others that have already arrived: one hand-over for each
// write of the peer.
func (t *Transport) readMessages(c *conn) error {
	var extended time.Time
	for {
		// A deadline costs a timer: it is moved once in a while, not for each read.
		if now := time.Now(); now.Sub(extended) > pingEvery/2 {
			extended = now
			if err := c.SetReadDeadline(now.Add(readTimeout)); err != nil {
				return err
			}
		}
		var batch []*raftpb.Message
		var group uint32
		for first := true; first || len(batch) < batchLimit && c.frames.ready(); first = false {
			kind, payload, err := c.frames.next(frameLimit)
			if err != nil {
				return err
			}
			if kind == framePing {
				if err := answerPing(c); err != nil {
					return err
				}
				continue
			}
			g, m, err := t.decode(kind, frameMessage, payload, c.peer.Node)
			if err != nil {
				return err
			}
			if g != group && len(batch) > 0 {
				t.cfg.Handler.Receive(group, batch)
				batch = nil
			}
			batch, group = append(batch, m), g
		}
		if len(batch) > 0 {
			t.cfg.Handler.Receive(group, batch)
		}
	}
}

func answerPing(c *conn) error {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err := c.Write(appendFrame(nil, framePing, nil))
	return err
}

// decode checks that a peer may send this: messages from itself, to us, of a kind that is sent over
// the network.
func (t *Transport) decode(kind, want frameKind, payload []byte, from uint64) (uint32, *raftpb.Message, error) {
	if kind != want || len(payload) < 8 {
		return 0, nil, fmt.Errorf("frame of kind %d and %d bytes, want kind %d", kind, len(payload), want)
	}
	body := payload[4:]
	if binary.BigEndian.Uint32(payload) != crc32.Checksum(body, castagnoli) {
		return 0, nil, errors.New("message damaged in transit")
	}
	m := new(raftpb.Message)
	if err := proto.Unmarshal(body[4:], m); err != nil {
		return 0, nil, fmt.Errorf("message: %w", err)
	}
	if m.GetFrom() != from || m.GetTo() != t.cfg.Self.Node {
		return 0, nil, fmt.Errorf("message from %016x to %016x on the stream from %016x", m.GetFrom(), m.GetTo(), from)
	}
	if snapshot := m.GetType() == raftpb.MsgSnap; raft.IsLocalMsg(m.GetType()) || snapshot != (want == frameSnapshot) {
		return 0, nil, fmt.Errorf("message of type %v in a frame of kind %d", m.GetType(), kind)
	}
	return binary.BigEndian.Uint32(body), m, nil
}
