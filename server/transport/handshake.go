package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"
)

// preamble is the first thing on a connection. Whatever sends something else is not a node.
const preamble = "LOCKSTP1"

// protocolVersion changes when older nodes can no longer understand us.
const protocolVersion = 1

// handshakeTimeout bounds the whole handshake.
const handshakeTimeout = 5 * time.Second

// What a connection is for.
const (
	purposeStream   = "stream"
	purposeSnapshot = "snapshot"
	purposeAsk      = "ask"   // only the handshake
	purposeJoin     = "join"  // a node that does not know its id asks for it
	purposeAudit    = "audit" // a question for lines of the audit log; older builds refuse it
)

// A hello opens the handshake.
type hello struct {
	Version int      `json:"version"`
	Purpose string   `json:"purpose"`
	From    Identity `json:"from"`
	To      uint64   `json:"to,string"`
	Nonce   []byte   `json:"nonce"`
	// Order says which side proves the secret first; older builds leave it out and mean the
	// acceptor.
	Order int `json:"order,omitempty"`
}

// dialerFirst is the order in which the dialer proves the secret before the acceptor reveals
// anything.
const dialerFirst = 1

// A welcome answers a hello.
type welcome struct {
	From  Identity `json:"from,omitzero"` // only in the older order
	Nonce []byte   `json:"nonce"`
	Order int      `json:"order,omitempty"` // dialerFirst, if the hello has it
}

// An introduction is what the acceptor says about itself to a dialer that has proved the secret.
type introduction struct {
	From    Identity `json:"from"`
	Refused string   `json:"refused,omitempty"` // why the two cannot talk; nothing follows
}

// A conn is a connection with its handshake.
type conn struct {
	net.Conn
	frames  *frameReader
	peer    Identity
	purpose string

	renewals uint64 // calls of Renew when it was accepted
	guest    *guest // its place while it is accepted and nothing is proved; nil: none
}

// newConn uses a small buffer: the other end has proved nothing yet.
func newConn(c net.Conn) *conn {
	return &conn{Conn: c, frames: &frameReader{r: bufio.NewReaderSize(c, 4<<10)}}
}

// grow gives a connection the buffer for what follows its handshake; some of that may already have
// arrived.
func (c *conn) grow() {
	early, _ := c.frames.r.Peek(c.frames.r.Buffered()) // what has arrived already
	c.frames.r = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(early), c.Conn), 64<<10)
}

// mac proves that its sender knows the secret and saw the same handshake. The role keeps one side's
// proof from being replayed as the other's.
func mac(secret []byte, role string, said ...[]byte) []byte {
	h := hmac.New(sha256.New, secret)
	for _, part := range append([][]byte{[]byte(role)}, said...) {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	return h.Sum(nil)
}

// proved returns the secret that a proof was made with.
func proved(secrets [][]byte, proof []byte, role string, said ...[]byte) (secret []byte, ok bool) {
	for _, secret := range secrets {
		if hmac.Equal(proof, mac(secret, role, said...)) {
			return secret, true
		}
	}
	return nil, false
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

// dial connects to a peer and performs the handshake. The identity is zero until the peer has
// proved the secret.
func (t *Transport) dial(ctx context.Context, p Peer, purpose string) (*conn, Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	raw, err := t.cfg.Dial(ctx, p.Address)
	if err != nil {
		return nil, Identity{}, err
	}
	defer context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })()
	c := newConn(raw)
	if _, err := t.greet(c, p, purpose, t.cfg.Present()); err != nil {
		raw.Close()
		if errors.Is(err, ErrUnproved) {
			t.count(Imposter)
		}
		return nil, c.peer, err
	}
	if n := t.find(p.Node); n != nil {
		n.foundAt(hostOf(raw.RemoteAddr()))
	}
	c.grow()
	return c, c.peer, raw.SetDeadline(time.Time{})
}

var errNoSecret = errors.New("this node has no cluster secret: start it with --cluster-secret-file, like the other nodes")

// An unproved error is from a side that has not proved the secret. What it says must have no
// effect, except that it is not let in.
type unproved struct{ error }

func (e unproved) Unwrap() []error { return []error{e.error, ErrUnproved} }

// greet is the dialer's side. told comes from the acceptor.
func (t *Transport) greet(c *conn, p Peer, purpose string, self Identity) (told []byte, err error) {
	secrets := t.secrets()
	if len(secrets) == 0 {
		return nil, errNoSecret
	}
	greeting, err := json.Marshal(hello{Version: protocolVersion, Purpose: purpose, From: self, To: p.Node, Nonce: nonce(), Order: dialerFirst})
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(appendFrame([]byte(preamble), frameHello, greeting)); err != nil {
		return nil, err
	}
	answer, err := c.expect(frameWelcome)
	if errors.Is(err, ErrRefused) {
		return nil, unproved{err}
	}
	if err != nil {
		return nil, err
	}
	var w welcome
	if err := json.Unmarshal(answer, &w); err != nil {
		return nil, unproved{fmt.Errorf("handshake: %w", err)}
	}
	var consent []byte
	if w.Order == dialerFirst {
		c.peer, err = t.proveFirst(c, secrets[0], greeting, answer)
		consent = appendFrame(nil, frameReady, nil)
	} else {
		c.peer, consent, err = t.proveToOlder(c, secrets, w.From, greeting, answer)
	}
	if err != nil {
		return nil, err
	}
	if n := t.find(c.peer.Node); n != nil {
		n.older.Store(w.Order != dialerFirst)
	}
	if c.peer.Node != p.Node && purpose != purposeJoin {
		return nil, t.refuse(c, refusedOther, fmt.Sprintf("%s is node %s (%016x), not %s (%016x)", p.Address, c.peer.Name, c.peer.Node, p.Name, p.Node))
	}
	if err := t.meet(c.peer, purpose); err != nil {
		return nil, t.refuse(c, codeFor(err, &c.peer), err.Error())
	}
	if _, err := c.Write(consent); err != nil {
		return nil, err
	}
	c.purpose = purpose
	return c.verdict()
}

// proveFirst proves the secret to the acceptor, and takes its proof and introduction.
func (t *Transport) proveFirst(c *conn, secret, greeting, answer []byte) (Identity, error) {
	if _, err := c.Write(appendFrame(nil, frameMAC, mac(secret, "dialer", greeting, answer))); err != nil {
		return Identity{}, err
	}
	told, err := c.expect(frameWelcome)
	if errors.Is(err, ErrRefused) {
		return Identity{}, unproved{err}
	}
	if err != nil {
		return Identity{}, err
	}
	proof, err := c.expect(frameMAC)
	if err != nil {
		return Identity{}, err
	}
	if !hmac.Equal(proof, mac(secret, "acceptor", greeting, answer, told)) {
		return Identity{}, unproved{errSecretDiffers}
	}
	var in introduction
	if err := json.Unmarshal(told, &in); err != nil {
		return Identity{}, fmt.Errorf("handshake: %w", err)
	}
	if in.Refused != "" {
		return in.From, &refusedError{code: refusedOther, reason: in.Refused}
	}
	return in.From, nil
}

// proveToOlder checks the proof of an acceptor of an older build, which proves the secret first,
// and sends our own.
func (t *Transport) proveToOlder(c *conn, secrets [][]byte, from Identity, greeting, answer []byte) (Identity, []byte, error) {
	proof, err := c.expect(frameMAC)
	if err != nil {
		return Identity{}, nil, err
	}
	secret, ok := proved(secrets, proof, "acceptor", greeting, answer)
	if !ok {
		return Identity{}, nil, unproved{t.refuse(c, refusedOther, errSecretDiffers.Error())}
	}
	return from, appendFrame(nil, frameMAC, mac(secret, "dialer", greeting, answer)), nil
}

// verdict reads whether the acceptor, which has proved the secret, lets us in: only an acceptor
// that has may end a node with this.
func (c *conn) verdict() (told []byte, err error) {
	told, err = c.expect(frameReady)
	if e := new(refusedError); errors.As(err, &e) && e.received() != 0 {
		return nil, &notAdmitted{verdict: e.received(), reason: e.Error(), remote: true}
	}
	return told, err
}

// meet decides on the peer that was dialled. A node that is to join knows no peers yet.
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

// A refusedError is a received refusal. It matches ErrRefused.
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

// codeFor returns the code that the peer understands. Builds before the verdicts, which report no
// level, know only Unwanted and read the words.
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

// refuse tells the other side why, and returns the same as an error.
func (t *Transport) refuse(c *conn, code byte, reason string) error {
	_, err := c.Write(appendRefusal(nil, code, reason))
	return errors.Join(errors.New(reason), err)
}

// A failure is why an acceptor abandoned a handshake, with the kind for the metric.
type failure struct {
	error
	why Refusal
}

func (e failure) Unwrap() error { return e.error }

var errSecretDiffers = errors.New("the cluster secret differs")

// receive is the acceptor's side.
func (t *Transport) receive(c *conn) error {
	h, greeting, err := c.hear()
	if err != nil {
		return err
	}
	if err := c.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	t.lobby.heard(c.guest)
	secrets := t.secrets()
	switch {
	case h.Version != protocolVersion:
		return failure{t.refuse(c, refusedOther, fmt.Sprintf("peer protocol %d is not supported, only %d", h.Version, protocolVersion)), Garbage}
	case len(secrets) == 0:
		return failure{t.refuse(c, refusedOther, errNoSecret.Error()), Unproved}
	case h.Order == dialerFirst:
		err = t.challenge(c, h, secrets, greeting)
	default:
		err = t.challengeOlder(c, h, secrets, greeting)
	}
	if err != nil {
		return err
	}
	ready, err := t.admit(h)
	if err != nil {
		return failure{t.refuse(c, codeFor(err, &h.From), err.Error()), NotLetIn}
	}
	c.peer, c.purpose = h.From, h.Purpose
	_, err = c.Write(appendFrame(nil, frameReady, ready))
	return err
}

// hear reads the greeting.
func (c *conn) hear() (*hello, []byte, error) {
	var pre [len(preamble)]byte
	if _, err := io.ReadFull(c.frames.r, pre[:]); err != nil {
		return nil, nil, failure{fmt.Errorf("handshake: %w", noEOF(err)), Silent}
	}
	if string(pre[:]) != preamble {
		return nil, nil, failure{fmt.Errorf("not a node speaking this protocol: it starts with %q", pre), Garbage}
	}
	greeting, err := c.expect(frameHello)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, nil, failure{err, Silent}
	}
	if err != nil {
		return nil, nil, failure{err, Garbage}
	}
	h := new(hello)
	if err := json.Unmarshal(greeting, h); err != nil {
		return nil, nil, failure{fmt.Errorf("handshake: %w", err), Garbage}
	}
	return h, greeting, nil
}

// challenge makes the dialer prove the secret before it is told anything, and then proves it with
// the same one.
func (t *Transport) challenge(c *conn, h *hello, secrets [][]byte, greeting []byte) error {
	answer, err := json.Marshal(welcome{Order: dialerFirst, Nonce: nonce()})
	if err != nil {
		return err
	}
	if _, err := c.Write(appendFrame(nil, frameWelcome, answer)); err != nil {
		return err
	}
	secret, err := t.takeProof(c, secrets, greeting, answer)
	if err != nil {
		return err
	}
	reason := t.objection(h)
	told, err := json.Marshal(introduction{From: t.cfg.Present(), Refused: reason})
	if err != nil {
		return err
	}
	out := appendFrame(nil, frameWelcome, told)
	if _, err := c.Write(appendFrame(out, frameMAC, mac(secret, "acceptor", greeting, answer, told))); err != nil {
		return err
	}
	if reason != "" {
		return failure{errors.New(reason), Mismatch}
	}
	if p := t.find(h.From.Node); p != nil && h.Purpose != purposeJoin {
		p.older.Store(false)
	}
	_, err = c.expect(frameReady) // or why the dialer does not want us
	return err
}

// challengeOlder performs the handshake with a dialer of a build that wants the acceptor's proof
// first. That would give a stranger what it needs to guess the secret. So the proof is given only
// to a member that has answered at its own address and proved the secret there in the older order;
// see docs/adr/0018.
func (t *Transport) challengeOlder(c *conn, h *hello, secrets [][]byte, greeting []byte) error {
	if p := t.find(h.From.Node); p == nil || !p.older.Load() || h.Purpose == purposeJoin {
		return failure{t.refuse(c, refusedOther, "the dialer must prove the cluster secret first: an older build is admitted once it has "+
			"answered at its own address, and cannot join"), OlderOrder}
	}
	if reason := t.objection(h); reason != "" {
		return failure{t.refuse(c, refusedOther, reason), Mismatch}
	}
	answer, err := json.Marshal(welcome{From: t.cfg.Present(), Nonce: nonce()})
	if err != nil {
		return err
	}
	out := appendFrame(nil, frameWelcome, answer)
	if _, err := c.Write(appendFrame(out, frameMAC, mac(secrets[0], "acceptor", greeting, answer))); err != nil {
		return err
	}
	_, err = t.takeProof(c, secrets, greeting, answer)
	return err
}

// takeProof reads the dialer's proof, and gives the connection a place among those that have proved
// the secret.
func (t *Transport) takeProof(c *conn, secrets [][]byte, greeting, answer []byte) ([]byte, error) {
	proof, err := c.expect(frameMAC)
	if err != nil {
		return nil, failure{err, Unproved}
	}
	secret, ok := proved(secrets, proof, "dialer", greeting, answer)
	if !ok {
		return nil, failure{t.refuse(c, refusedOther, errSecretDiffers.Error()), WrongSecret}
	}
	if !t.lobby.leave(c.guest) {
		return nil, failure{errors.New("too many handshakes in progress"), Crowded}
	}
	select {
	case t.incoming <- struct{}{}:
		c.guest = nil
		return secret, nil
	default:
		return nil, failure{t.refuse(c, refusedOther, "too many peer connections"), Crowded}
	}
}

// admit decides on a peer that has proved the secret, and returns what to tell it.
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

// unknownPurpose is how a node refuses a purpose that it does not know. Other builds read it, so
// its words must not change.
const unknownPurpose = "purpose %.64q is not known"

// objection returns why two nodes cannot talk, whatever they think of each other, or "".
func (t *Transport) objection(h *hello) string {
	self := &t.cfg.Self
	switch {
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
