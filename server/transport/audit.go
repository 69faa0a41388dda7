package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"
)

const (
	// auditBytesPerSecond bounds the answers from the audit log: some 80,000 lines, more than the
	// events of any peak, and a fraction of what Raft's messages leave of a 1 Gb/s network.
	auditBytesPerSecond = 32 << 20
	// answerPatience is how long a question waits for those of other peers. It is less than the
	// asking side waits.
	answerPatience = contentTimeout / 2
)

// AskAudit asks a peer for the lines of its audit log for the events in [from, to). The answer is
// what the peer's Config.Audit returned, checked for damage; it is complete only once io.EOF is
// reached. It must be closed, and ctx ends it too. [ErrNoAudit] says that the peer keeps no audit
// log, or that its build does not know the question.
func (t *Transport) AskAudit(ctx context.Context, node, from, to uint64) (io.ReadCloser, error) {
	p := t.find(node)
	if p == nil {
		return nil, fmt.Errorf("transport: unknown peer %016x", node)
	}
	c, _, err := t.dial(ctx, p.Peer, purposeAudit)
	if err != nil {
		return nil, fmt.Errorf("transport: ask %s for its audit log: %w", p.Name, noAudit(err))
	}
	if err := c.send(appendQuestion(nil, from, to)); err != nil {
		return nil, fmt.Errorf("transport: ask %s for its audit log: %w", p.Name, errors.Join(err, c.Close()))
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	return &auditAnswer{contentReader{c: c}, stop}, nil
}

var (
	// ErrNoAudit is matched by the error of AskAudit if asking that peer again won't help.
	ErrNoAudit = errors.New("the peer keeps no audit log")
	// errNoAudit is its counterpart on the other side.
	errNoAudit = errors.New("this node keeps no audit log")
)

// noAudit makes a refusal that says so match ErrNoAudit.
func noAudit(err error) error {
	e := new(refusedError)
	if errors.As(err, &e) && (e.code == refusedAudit || e.reason == fmt.Sprintf(unknownPurpose, purposeAudit)) {
		return fmt.Errorf("%w: %w", ErrNoAudit, err)
	}
	return err
}

// An auditAnswer is an answer on its connection.
type auditAnswer struct {
	contentReader
	stop func() bool
}

func (a *auditAnswer) Close() error {
	a.stop()
	return a.c.Close()
}

func appendQuestion(dst []byte, from, to uint64) []byte {
	body := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, from), to)
	return appendFrame(dst, frameQuestion, append(binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, castagnoli)), body...))
}

func (c *conn) readQuestion() (from, to uint64, err error) {
	if err := c.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return 0, 0, err
	}
	kind, payload, err := c.frames.next(handshakeLimit)
	switch {
	case err != nil:
		return 0, 0, err
	case kind != frameQuestion || len(payload) != 20:
		return 0, 0, fmt.Errorf("frame of kind %d and %d bytes, want a request", kind, len(payload))
	case binary.BigEndian.Uint32(payload) != crc32.Checksum(payload[4:], castagnoli):
		return 0, 0, errors.New("request damaged in transit")
	}
	return binary.BigEndian.Uint64(payload[4:]), binary.BigEndian.Uint64(payload[12:]), nil
}

// answerAudit answers one question.
func (t *Transport) answerAudit(ctx context.Context, c *conn) {
	err := t.tellAudit(ctx, c)
	if err == nil || ctx.Err() != nil {
		return
	}
	t.log.Debug("audit log request not answered", "peer", c.peer.Name, "err", err)
	// The peer asks again, here or elsewhere, whether this arrives or not.
	_ = c.send(appendRefusal(nil, refusedOther, err.Error()))
}

func (t *Transport) tellAudit(ctx context.Context, c *conn) error {
	from, to, err := c.readQuestion()
	if err != nil {
		return err
	}
	if err := t.takeTurn(ctx); err != nil {
		return err
	}
	defer func() { <-t.answering }()
	content, err := t.cfg.Audit(from, to)
	if err != nil {
		return err
	}
	end, err := sendChunks(ctx, content, auditBytesPerSecond, c.send)
	if err = errors.Join(err, content.Close()); err != nil {
		return err
	}
	return c.send(end)
}

// takeTurn waits, for a limited time, until no other question is being answered.
func (t *Transport) takeTurn(ctx context.Context) error {
	patience := time.NewTimer(answerPatience)
	defer patience.Stop()
	select {
	case t.answering <- struct{}{}:
		return nil
	case <-patience.C:
		return errors.New("busy with the request of another peer")
	case <-ctx.Done():
		return ctx.Err()
	}
}
