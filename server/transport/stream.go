package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// watch reads the answers to our pings until they stop. Otherwise, a stream over a broken network
// would last until the kernel gives up on it and, after a repair, wait for its next, rare,
// retransmission.
func watch(c *conn) error {
	for {
		if err := c.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
			return err
		}
		kind, _, err := c.frames.next(handshakeLimit)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("no response from the peer for %v", readTimeout)
		}
		if err != nil {
			return errors.Join(errors.New("the peer ended the stream"), ignoreReset(err))
		}
		if kind != framePing {
			return fmt.Errorf("unexpected frame of kind %d on an outgoing stream", kind)
		}
	}
}

// ignoreReset drops errors that only say that the peer is gone.
func ignoreReset(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// write sends what is queued, everything at once up to a bound, and a ping at intervals.
//
// To save the wake-up of this goroutine, we tried letting Send itself write to the socket as far as
// that accepted bytes without waiting: with five processes on two cores neither grants/s nor CPU
// per grant changed, for one worker or 64.
func (p *peer) write(ctx context.Context, c net.Conn) error {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	var o outgoing
	due := true
	for {
		out := p.take(&o, due)
		due = false
		if len(out) > 0 {
			if err := writeAll(c, out); err != nil {
				return err
			}
			select {
			case <-ping.C:
				due = true
			default:
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-ping.C:
			due = true
		}
	}
}

func writeAll(c net.Conn, out net.Buffers) error {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err := out.WriteTo(c)
	return err
}

// An outgoing is what the writer has taken from the queues.
type outgoing struct {
	urgent, normal []byte // the buffers of the last writes, for reuse
	rest           []byte // of normal, not written yet
}

// take swaps the queues for buffers that have been written. It takes only a part of the normal
// frames, so that urgent ones don't wait for a megabyte on a slow link.
func (p *peer) take(o *outgoing, ping bool) (out net.Buffers) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o.urgent, p.mu.urgent = p.mu.urgent, recycle(o.urgent)
	if len(o.rest) == 0 {
		o.normal, p.mu.normal = p.mu.normal, recycle(o.normal)
		o.rest = o.normal
	}
	part := firstFrames(o.rest)
	o.rest = o.rest[len(part):]
	p.mu.writing = len(part) + len(o.rest)
	if ping {
		out = append(out, appendFrame(nil, framePing, nil))
	}
	for _, b := range [][]byte{o.urgent, part} {
		if len(b) > 0 {
			out = append(out, b)
		}
	}
	if len(o.urgent)+len(part) == 0 {
		p.mu.dropping = false
	}
	return out
}

// recycle empties a buffer. One that a burst made large is left to the garbage collector.
func recycle(b []byte) []byte {
	if cap(b) > normalLimit/4 {
		return nil
	}
	return b[:0]
}

// firstFrames returns the longest part of b that consists of whole frames within writeLimit, but at
// least one frame.
func firstFrames(b []byte) []byte {
	end := 0
	for end < len(b) {
		next := end + 4 + int(binary.BigEndian.Uint32(b[end:]))
		if next > writeLimit && end > 0 {
			break
		}
		end = next
	}
	return b[:end]
}
