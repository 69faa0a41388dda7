package transport

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// preamble is the first thing on a connection. Whoever sends something else is not a node.
const preamble = "LOCKSTP1"

// protocolVersion changes when older nodes can't understand us any more.
const protocolVersion = 1

// handshakeTimeout bounds the whole handshake.
const handshakeTimeout = 5 * time.Second

// What a connection is for.
const (
	purposeStream   = "stream"
	purposeSnapshot = "snapshot"
	purposeAsk      = "ask"   // the handshake alone
	purposeJoin     = "join"  // a node that does not know its id asks for it
	purposeAudit    = "audit" // a question for lines of the audit log; nodes of older builds refuse it
)

// A hello opens the handshake.
type hello struct {
	Version int      `json:"version"`
	Purpose string   `json:"purpose"`
	From    Identity `json:"from"`
	To      uint64   `json:"to,string"`
	Nonce   []byte   `json:"nonce"`
}

// A welcome answers it.
type welcome struct {
	From  Identity `json:"from"`
	Nonce []byte   `json:"nonce"`
}

// A conn is a connection behind its handshake.
type conn struct {
	net.Conn
	frames  *frameReader
	peer    Identity
	purpose string

	renewals uint64 // calls of Renew when it was accepted
}

func newConn(c net.Conn) *conn {
	return &conn{Conn: c, frames: &frameReader{r: bufio.NewReaderSize(c, 64<<10)}}
}

// mac proves that its sender knows the secret and saw the same handshake. The role keeps one side's
// proof from being played back as the other's.
func (t *Transport) mac(role string, hello, welcome []byte) []byte {
	h := hmac.New(sha256.New, t.cfg.Secret)
	for _, part := range [][]byte{[]byte(role), hello, welcome} {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	return h.Sum(nil)
}

func nonce() []byte {
	b := make([]byte, 32)
	rand.Read(b) // never fails, see its documentation
	return b
}

// expect reads a frame of the handshake.
func (c *conn) expect(kind frameKind) ([]byte, error) {
	got, payload, err := c.frames.next(handshakeLimit)
	if err != nil {
		return nil, fmt.Errorf("handshake: %w", noEOF(err))
	}
	if got == frameRefused {
		return nil, refusal(payload)
	}
	if got != kind {
		return nil, fmt.Errorf("handshake: frame of kind %d, want %d", got, kind)
	}
	return append([]byte(nil), payload...), nil
}

// dial connects to a peer and shakes hands. The identity is zero until the peer has proved the secret.
func (t *Transport) dial(ctx context.Context, p Peer, purpose string) (*conn, Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	raw, err := t.cfg.Dial(ctx, p.Address)
	if err != nil {
		return nil, Identity{}, err
	}
	defer context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })()
	c := newConn(raw)
	if err := t.greet(c, p, purpose, t.cfg.Present(), nil); err != nil {
		raw.Close()
		return nil, c.peer, err
	}
	return c, c.peer, raw.SetDeadline(time.Time{})
}

// greet is the dialer's side.
func (t *Transport) greet(c *conn, p Peer, purpose string, self Identity, ready *[]byte) error {
	greeting, err := json.Marshal(hello{Version: protocolVersion, Purpose: purpose, From: self, To: p.Node, Nonce: nonce()})
	if err != nil {
		return err
	}
	if _, err := c.Write(appendFrame([]byte(preamble), frameHello, greeting)); err != nil {
		return err
	}
	answer, err := c.expect(frameWelcome)
	if err != nil {
		return err
	}
	proof, err := c.expect(frameMAC)
	if err != nil {
		return err
	}
	if !hmac.Equal(proof, t.mac("acceptor", greeting, answer)) {
		return t.refuse(c, refusedOther, "the cluster secret differs")
	}
	var w welcome
	if err := json.Unmarshal(answer, &w); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	c.peer = w.From
	if w.From.Node != p.Node && purpose != purposeJoin {
		return t.refuse(c, refusedOther, fmt.Sprintf("%s is node %s (%016x), not %s (%016x)", p.Address, w.From.Name, w.From.Node, p.Name, p.Node))
	}
	if err := t.meet(w.From, purpose); err != nil {
		return t.refuse(c, codeFor(err, &w.From), err.Error())
	}
	if _, err := c.Write(appendFrame(nil, frameMAC, t.mac("dialer", greeting, answer))); err != nil {
		return err
	}
	told, err := c.expect(frameReady)
	// Only here the refusing side has proved the secret: a stranger must not end a node with this.
	if e := new(refusedError); errors.As(err, &e) && e.received() != 0 {
		return &notAdmitted{verdict: e.received(), reason: e.Error(), remote: true}
	}
	if err != nil {
		return err
	}
	c.purpose = purpose
	if ready != nil {
		*ready = told
	}
	return nil
}

// meet decides on the peer that was dialled. A node that is to join knows none of them yet.
func (t *Transport) meet(peer Identity, purpose string) error {
	if purpose == purposeJoin {
		return nil
	}
	return t.cfg.Handler.Admit(peer, true)
}

// A refusal on the wire is one byte, a Verdict or one of these, and a text.
const (
	refusedOther = 0
	refusedAudit = 2 // there is no audit log
)

func appendRefusal(dst []byte, code byte, reason string) []byte {
	const limit = 1024
	return appendFrame(dst, frameRefused, append([]byte{code}, reason[:min(len(reason), limit)]...))
}

// A refusedError is a refusal that was received. It matches ErrRefused.
type refusedError struct {
	code   byte
	reason string
}

func (e *refusedError) Error() string        { return ErrRefused.Error() + ": " + e.reason }
func (e *refusedError) Is(target error) bool { return target == ErrRefused }

func refusal(payload []byte) error {
	if len(payload) == 0 {
		return &refusedError{}
	}
	return &refusedError{code: payload[0], reason: string(payload[1:])}
}

// codeFor is the code that the peer understands. Builds before the verdicts, which tell no level, know Unwanted alone and read the
// words.
func codeFor(err error, peer *Identity) byte {
	if v := VerdictOf(err); peer.Level == 0 && (v == Removed || v == Replaced) {
		return byte(Unwanted)
	}
	return admitCode(err)
}

func admitCode(err error) byte {
	if v := VerdictOf(err); v != 0 {
		return byte(v)
	}
	if errors.Is(err, errNoAudit) {
		return refusedAudit
	}
	return refusedOther // we could not tell: that is no reason for the peer to end
}

// refuse tells the other side why, and gives the same as an error.
func (t *Transport) refuse(c *conn, code byte, reason string) error {
	_, err := c.Write(appendRefusal(nil, code, reason))
	return errors.Join(errors.New(reason), err)
}

// receive is the acceptor's side.
func (t *Transport) receive(c *conn) error {
	var pre [len(preamble)]byte
	if _, err := io.ReadFull(c.frames.r, pre[:]); err != nil {
		return fmt.Errorf("handshake: %w", noEOF(err))
	}
	if string(pre[:]) != preamble {
		return fmt.Errorf("not a node of this protocol: it starts with %q", pre)
	}
	greeting, err := c.expect(frameHello)
	if err != nil {
		return err
	}
	var h hello
	if err := json.Unmarshal(greeting, &h); err != nil {
		return t.refuse(c, refusedOther, "handshake not understood")
	}
	if reason := t.objection(&h); reason != "" {
		return t.refuse(c, refusedOther, reason)
	}
	answer, err := json.Marshal(welcome{From: t.cfg.Present(), Nonce: nonce()})
	if err != nil {
		return err
	}
	out := appendFrame(nil, frameWelcome, answer)
	if _, err := c.Write(appendFrame(out, frameMAC, t.mac("acceptor", greeting, answer))); err != nil {
		return err
	}
	proof, err := c.expect(frameMAC)
	if err != nil {
		return err
	}
	if !hmac.Equal(proof, t.mac("dialer", greeting, answer)) {
		return t.refuse(c, refusedOther, "the cluster secret differs")
	}
	ready, err := t.admit(&h)
	if err != nil {
		return t.refuse(c, codeFor(err, &h.From), err.Error())
	}
	c.peer, c.purpose = h.From, h.Purpose
	_, err = c.Write(appendFrame(nil, frameReady, ready))
	return err
}

// admit decides on a peer that has proved the secret, and gives what it is told.
func (t *Transport) admit(h *hello) (ready []byte, err error) {
	if h.Purpose == purposeJoin {
		return t.welcomeJoin(h.From)
	}
	if err := t.cfg.Handler.Admit(h.From, false); err != nil {
		return nil, err
	}
	if t.find(h.From.Node) == nil {
		return nil, fmt.Errorf("node %.64q (%016x) is not a member", h.From.Name, h.From.Node)
	}
	if h.Purpose == purposeAudit && t.cfg.Audit == nil {
		return nil, errNoAudit
	}
	return nil, nil
}

// unknownPurpose is how a node refuses what it does not know. Those of other builds read it: its words stay.
const unknownPurpose = "purpose %.64q is not known"

// objection says why a greeting is refused before anything is proved, or "".
func (t *Transport) objection(h *hello) string {
	self := &t.cfg.Self
	switch {
	case h.Version != protocolVersion:
		return fmt.Sprintf("peer protocol %d is not spoken here, only %d", h.Version, protocolVersion)
	case h.Purpose == purposeJoin && h.From.ClusterID != "" && h.From.ClusterID == t.cfg.Present().Birth:
		return ""
	case h.From.ClusterID != self.ClusterID:
		return fmt.Sprintf("this is cluster %s, not %.64q: the initial clusters differ", self.ClusterID, h.From.ClusterID)
	case h.Purpose == purposeJoin:
		return ""
	case h.To != self.Node:
		return fmt.Sprintf("this is node %s (%016x), not %016x: two addresses are mixed up", self.Name, self.Node, h.To)
	case !slices.Contains([]string{purposeStream, purposeSnapshot, purposeAsk, purposeAudit}, h.Purpose):
		return fmt.Sprintf(unknownPurpose, h.Purpose)
	}
	return ""
}
