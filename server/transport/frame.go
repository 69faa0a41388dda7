package transport

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// A frame on the wire is length(4) kind(1) payload, the length counting kind and payload, big
// endian.
const (
	frameHead = 5
	// frameLimit bounds a frame after the handshake. An entry is at most some 256 KiB and a message
	// 128 KiB more.
	frameLimit = 4 << 20
	// handshakeLimit bounds a frame before the other side is known.
	handshakeLimit = 8 << 10
)

type frameKind byte

const (
	framePing     frameKind = iota + 1 // empty: the sender is alive; answered by a ping
	frameHello                         // dialer: JSON hello
	frameWelcome                       // acceptor: JSON welcome
	frameMAC                           // either: proof of the secret
	frameReady                         // acceptor: the stream is open
	frameRefused                       // either: the reason in words; nothing follows
	frameMessage                       // checksum(4), group(4), Raft message
	frameSnapshot                      // checksum(4), group(4), MsgSnap
	frameChunk                         // checksum(4), a part of the content of a snapshot or answer
	frameEnd                           // checksum(4), size(8): the content is complete
	frameStored                        // receiver: the snapshot is durable
	frameQuestion                      // checksum(4), from(8), to(8): events; answered in chunks
)

// appendFrame appends a small frame.
func appendFrame(dst []byte, kind frameKind, payload []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(1+len(payload)))
	return append(append(dst, byte(kind)), payload...)
}

// A frameReader reads frames. The next read reuses its buffer.
type frameReader struct {
	r   *bufio.Reader
	buf []byte
}

// next reads a frame of at most limit bytes. Nothing is allocated for a longer one.
func (f *frameReader) next(limit int) (frameKind, []byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 1 || n > uint32(limit) {
		return 0, nil, fmt.Errorf("frame of %d bytes, at most %d are allowed", n, limit)
	}
	size := int(n) - 1
	if cap(f.buf) < size {
		f.buf = make([]byte, max(size, 4<<10))
	}
	if _, err := io.ReadFull(f.r, f.buf[:size]); err != nil {
		return 0, nil, noEOF(err)
	}
	return frameKind(head[4]), f.buf[:size], nil
}

// ready reports whether the next frame can be read without waiting.
func (f *frameReader) ready() bool {
	if f.r.Buffered() < frameHead {
		return false
	}
	head, err := f.r.Peek(4)
	return err == nil && uint64(f.r.Buffered()) >= 4+uint64(binary.BigEndian.Uint32(head))
}

// noEOF turns io.EOF, an end between two frames, into io.ErrUnexpectedEOF, an end inside one.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
