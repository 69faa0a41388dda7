package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

const (
	snapshotChunk = 64 << 10
	// storeTimeout is how long a receiver may take to make a complete snapshot durable and load it.
	storeTimeout = 2 * time.Minute
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SendSnapshot sends a MsgSnap and its content on a connection of its own, at the configured rate,
// and returns once the peer has made it durable.
func (t *Transport) SendSnapshot(ctx context.Context, group uint32, msg *raftpb.Message, content io.Reader) error {
	p := t.find(msg.GetTo())
	if p == nil {
		return fmt.Errorf("transport: unknown peer %016x", msg.GetTo())
	}
	c, _, err := t.dial(ctx, p.Peer, purposeSnapshot)
	if err != nil {
		return fmt.Errorf("transport: send snapshot to %s: %w", p.Name, err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := t.sendContent(ctx, c, group, msg, content); err != nil {
		if reason := c.lastWord(); reason != nil {
			err = reason // the receiver has given up: it knows why
		}
		return fmt.Errorf("transport: send snapshot to %s: %w", p.Name, err)
	}
	return nil
}

// lastWord reads a refusal that the peer sent before it closed the connection.
func (c *conn) lastWord() error {
	c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := c.expect(frameStored); errors.Is(err, ErrRefused) {
		return err
	}
	return nil
}

func (t *Transport) sendContent(ctx context.Context, c *conn, group uint32, msg *raftpb.Message, content io.Reader) error {
	send := c.send
	if err := send(appendMessage(nil, frameSnapshot, group, msg)); err != nil {
		return err
	}
	end, err := sendChunks(ctx, content, t.cfg.SnapshotBytesPerSecond, send)
	if err != nil {
		return err
	}
	if err := send(end); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(storeTimeout)); err != nil {
		return err
	}
	_, err = c.expect(frameStored)
	return err
}

// contentTimeout is how long a part of a content may take to be sent, or to arrive.
const contentTimeout = 10 * time.Second

// send writes one frame of a content.
func (c *conn) send(frame []byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(contentTimeout)); err != nil {
		return err
	}
	_, err := c.Write(frame)
	return err
}

// sendChunks sends the content, at most this many bytes per second, and returns the frame that ends
// it.
func sendChunks(ctx context.Context, content io.Reader, bytesPerSecond int, send func([]byte) error) ([]byte, error) {
	var crc uint32
	var total uint64
	began := time.Now()
	buf := make([]byte, frameHead+4+snapshotChunk)
	for {
		n, err := content.Read(buf[frameHead+4:])
		if n > 0 {
			crc = crc32.Update(crc, castagnoli, buf[frameHead+4:][:n])
			total += uint64(n)
			binary.BigEndian.PutUint32(buf, uint32(1+4+n))
			buf[4] = byte(frameChunk)
			binary.BigEndian.PutUint32(buf[frameHead:], crc)
			if err := send(buf[:frameHead+4+n]); err != nil {
				return nil, err
			}
			due := time.Duration(float64(total) / float64(bytesPerSecond) * float64(time.Second))
			if ahead := due - time.Since(began); ahead > 0 && !sleep(ctx, ahead) {
				return nil, ctx.Err()
			}
		}
		if errors.Is(err, io.EOF) {
			end := binary.BigEndian.AppendUint32(nil, crc)
			return appendFrame(nil, frameEnd, binary.BigEndian.AppendUint64(end, total)), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// readSnapshot receives one snapshot and reports the outcome to the sender.
func (t *Transport) readSnapshot(ctx context.Context, c *conn) {
	err := t.storeSnapshot(ctx, c)
	answer := appendFrame(nil, frameStored, nil)
	if err != nil {
		t.log.Warn("snapshot not received", "peer", c.peer.Name, "err", err)
		answer = appendRefusal(nil, refusedOther, err.Error())
	}
	c.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := c.Write(answer); err != nil {
		t.log.Debug("response to a snapshot not sent", "peer", c.peer.Name, "err", err)
	}
}

func (t *Transport) storeSnapshot(ctx context.Context, c *conn) error {
	t.mu.Lock()
	busy := t.mu.receiving
	t.mu.receiving = true
	t.mu.Unlock()
	if busy {
		return errors.New("another snapshot is being received")
	}
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.mu.receiving = false
	}()
	if err := c.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return err
	}
	kind, payload, err := c.frames.next(frameLimit)
	if err != nil {
		return err
	}
	group, msg, err := t.decode(kind, frameSnapshot, payload, c.peer.Node)
	if err != nil {
		return err
	}
	return t.cfg.Handler.ReceiveSnapshot(ctx, group, msg, &contentReader{c: c})
}

// A contentReader reads the content of a snapshot or an answer from its chunks. It returns nothing
// unchecked, and io.EOF only after a correct end.
type contentReader struct {
	c     *conn
	crc   uint32
	total uint64
	rest  []byte
	err   error
}

func (r *contentReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil {
		r.rest, r.err = r.next()
	}
	if len(r.rest) == 0 {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *contentReader) next() ([]byte, error) {
	if err := r.c.SetReadDeadline(time.Now().Add(contentTimeout)); err != nil {
		return nil, err
	}
	kind, payload, err := r.c.frames.next(snapshotChunk + 64)
	if err != nil {
		return nil, noEOF(err)
	}
	switch {
	case kind == frameChunk && len(payload) > 4:
		data := payload[4:]
		r.crc = crc32.Update(r.crc, castagnoli, data)
		r.total += uint64(len(data))
		if binary.BigEndian.Uint32(payload) != r.crc {
			return nil, errors.New("content damaged in transit")
		}
		return data, nil
	case kind == frameEnd && len(payload) == 12:
		if binary.BigEndian.Uint32(payload) != r.crc || binary.BigEndian.Uint64(payload[4:]) != r.total {
			return nil, errors.New("content incomplete")
		}
		return nil, io.EOF
	case kind == frameRefused && len(payload) > 0:
		return nil, fmt.Errorf("the peer aborted: %s", payload[1:])
	}
	return nil, fmt.Errorf("unexpected frame of kind %d", kind)
}
