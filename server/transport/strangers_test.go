package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A stranger is a connection to a node that does by hand what a test wants.
type stranger struct {
	t *testing.T
	*conn
}

func knock(t *testing.T, b *side) stranger {
	t.Helper()
	raw, err := net.Dial("tcp", b.cfg.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	if err := raw.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return stranger{t, newConn(raw)}
}

// greets sends what node 1 says to node 2, and returns it as sent.
func (s stranger) greets(order int) []byte {
	s.t.Helper()
	h := hello{
		Version: protocolVersion, Purpose: purposeAsk, From: Identity{ClusterID: "c", Node: 1, Name: "n1", Level: 2}, To: 2,
		Nonce: nonce(), Order: order,
	}
	greeting, err := json.Marshal(h)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.Write(appendFrame([]byte(preamble), frameHello, greeting)); err != nil {
		s.t.Fatal(err)
	}
	return greeting
}

func (s stranger) wants(kind frameKind) []byte {
	s.t.Helper()
	b, err := s.expect(kind)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

func (s *side) counted(r Refusal) {
	s.t.Helper()
	eventually(s.t, r.String()+" in the count", func() bool { return s.cfg.Refused.Read()[r] > 0 })
}

func TestAStrangerIsToldNothingBeforeItHasProvedTheSecret(t *testing.T) {
	_, b := pair(t, nil)
	for _, proof := range [][]byte{nil, []byte("nothing"), make([]byte, 32)} {
		s := knock(t, b)
		s.greets(dialerFirst)
		var w map[string]any
		if err := json.Unmarshal(s.wants(frameWelcome), &w); err != nil || len(w) != 2 || w["nonce"] == nil {
			t.Errorf("a stranger was told %v (%v)", w, err)
		}
		if proof == nil {
			s.Close()
			b.counted(Unproved)
			continue
		}
		if _, err := s.Write(appendFrame(nil, frameMAC, proof)); err != nil {
			t.Fatal(err)
		}
		if told, err := s.expect(frameWelcome); !errors.Is(err, ErrRefused) {
			t.Errorf("a stranger without a proof was told %q, %v", told, err)
		}
		b.counted(WrongSecret)
	}
}

// oldAcceptor answers like builds that proved the secret first.
func oldAcceptor(t *testing.T, l net.Listener, self Identity, secret string) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			if err := answerAsOld(newConn(raw), self, secret); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Log("older build:", err)
			}
			raw.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
}

func answerAsOld(c *conn, self Identity, secret string) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, c.frames.r, int64(len(preamble))); err != nil {
		return err
	}
	greeting, err := c.expect(frameHello)
	if err != nil {
		return err
	}
	answer, err := json.Marshal(map[string]any{"from": self, "nonce": nonce()})
	if err != nil {
		return err
	}
	out := appendFrame(appendFrame(nil, frameWelcome, answer), frameMAC, mac([]byte(secret), "acceptor", greeting, answer))
	if _, err := c.Write(out); err != nil {
		return err
	}
	proof, err := c.expect(frameMAC)
	if err != nil {
		return err
	}
	if _, ok := proved([][]byte{[]byte(secret)}, proof, "dialer", greeting, answer); !ok {
		return errSecretDiffers
	}
	_, err = c.Write(appendFrame(nil, frameReady, nil))
	return err
}

// dialAsOld performs the handshake as the dialer of such a build.
func dialAsOld(t *testing.T, b *side, secret string) error {
	t.Helper()
	s := knock(t, b)
	defer s.Close()
	greeting := s.greets(0)
	answer, err := s.expect(frameWelcome)
	if err != nil {
		return err
	}
	proof := s.wants(frameMAC)
	if _, ok := proved([][]byte{[]byte(secret)}, proof, "acceptor", greeting, answer); !ok {
		return errSecretDiffers
	}
	if _, err := s.Write(appendFrame(nil, frameMAC, mac([]byte(secret), "dialer", greeting, answer))); err != nil {
		return err
	}
	_, err = s.expect(frameReady)
	return err
}

// A node talks in both directions to a build that proves the secret first as an acceptor, and
// expects that from others. Only that member gets the proof that it expects, and only while it runs
// that build.
func TestAMemberOfAnOlderBuildIsTalkedToOnceItHasAnsweredAtItsAddress(t *testing.T) {
	var old net.Listener
	a, b := pair(t, func(n uint64, s *side) {
		if n == 2 {
			var err error
			if old, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
			s.cfg.Peers[0].Address = old.Addr().String()
		}
	})
	if err := dialAsOld(t, b, "s"); !errors.Is(err, ErrRefused) {
		t.Errorf("one that may be a stranger was answered: %v", err)
	}
	b.counted(OlderOrder)

	oldAcceptor(t, old, a.cfg.Self, "s")
	eventually(t, "the older build was asked", func() bool { id, err := b.Ask(t.Context(), 1); return err == nil && id.Name == "n1" })
	if err := dialAsOld(t, b, "s"); err != nil {
		t.Errorf("a member of an older build is not let in: %v", err)
	}
	if err := dialAsOld(t, b, "other"); !errors.Is(err, errSecretDiffers) {
		t.Errorf("with another secret: %v", err)
	}

	old.Close()
	eventually(t, "the end of the older order after the upgrade", func() bool {
		_, err := a.Ask(t.Context(), 2)
		return err == nil && errors.Is(dialAsOld(t, b, "s"), ErrRefused)
	})
}

func TestWhoAnswersAtAPeersAddressWithoutTheSecretEndsNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a, _ := pair(t, func(n uint64, s *side) { s.cfg.Peers[0].Address = l.Addr().String() })
	for name, answer := range map[string]func(c *conn) error{
		"removed at once": func(c *conn) error {
			_, err := c.Write(appendRefusal(nil, byte(Removed), `member "n1" was removed`))
			return err
		},
		"removed after a welcome": func(c *conn) error {
			_, err := c.Write(appendRefusal(appendFrame(nil, frameWelcome, []byte(`{"order":1,"nonce":"AA=="}`)), byte(Removed), `member "n1" was removed`))
			return err
		},
		"as an older build": func(c *conn) error { return answerAsOld(c, Identity{ClusterID: "c", Node: 2}, "") },
		"no proof": func(c *conn) error {
			_, err := c.Write(appendFrame(appendFrame(appendFrame(nil, frameWelcome, []byte(`{"order":1}`)), frameWelcome, []byte(`{}`)), frameMAC, nil))
			return err
		},
	} {
		before := a.cfg.Refused.Read()[Imposter]
		for a.cfg.Refused.Read()[Imposter] == before { // others dial too: a's stream
			raw, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			answer(newConn(raw)) // a may already be gone
			io.Copy(io.Discard, raw)
			raw.Close()
		}
		if v := a.Peers()[0].Verdict; v != 0 || len(a.rejected) > 0 {
			t.Errorf("%s: was believed, verdict %d", name, v)
		}
	}
	l.Close()
}

func TestSecretsAreRotatedOneNodeAtATime(t *testing.T) {
	var secrets [2]atomic.Value
	set := func(i int, list ...string) {
		var all [][]byte
		for _, s := range list {
			all = append(all, []byte(s))
		}
		secrets[i].Store(all)
	}
	set(0, "old")
	set(1, "old")
	a, b := pair(t, func(n uint64, s *side) {
		s.cfg.Secrets = func() [][]byte { return secrets[n-1].Load().([][]byte) }
	})
	for _, step := range []struct {
		node int
		list []string
	}{
		{0, []string{"old", "new"}}, {1, []string{"old", "new"}}, {0, []string{"new", "old"}}, {1, []string{"new", "old"}}, {0, []string{"new"}}, {1, []string{"new"}},
	} {
		set(step.node, step.list...)
		_, err := a.Ask(t.Context(), 2)
		_, err2 := b.Ask(t.Context(), 1)
		if err := errors.Join(err, err2); err != nil {
			t.Errorf("node %d has %v: %v", step.node+1, step.list, err)
		}
	}
	set(0, "old")
	if _, err := a.Ask(t.Context(), 2); err == nil || !strings.Contains(err.Error(), "secret differs") {
		t.Errorf("the old secret is accepted after the rotation: %v", err)
	}
}

// Nodes are let in while silent connections from their own host repeatedly take every place.
func TestSilentConnectionsKeepNoNodeOut(t *testing.T) {
	a, b := pair(t, nil)
	ctx, stop := context.WithCancel(t.Context())
	address := b.cfg.Listener.Addr().String()
	ended := make(chan struct{}, 100)
	for range cap(ended) {
		go func() {
			defer func() { ended <- struct{}{} }()
			for ctx.Err() == nil {
				c, err := net.Dial("tcp", address)
				if err != nil {
					continue
				}
				end := context.AfterFunc(ctx, func() { c.Close() })
				io.Copy(io.Discard, c) // until the connection is closed
				end()
				c.Close()
				sleep(ctx, 20*time.Millisecond)
			}
		}()
	}
	b.counted(Crowded)
	for range 20 {
		eventually(t, "a handshake", func() bool { _, err := a.Ask(t.Context(), 2); return err == nil })
	}
	stop()
	for range cap(ended) {
		<-ended
	}
}

type closer struct {
	net.Conn
	closed bool
}

func (c *closer) Close() error { c.closed = true; return nil }

func TestPlacesOfConnectionsThatHaveProvedNothing(t *testing.T) {
	var l lobby
	enter := func(host string, peers int) (*closer, *guest) {
		c := new(closer)
		return c, l.enter(c, host, peers)
	}
	spoken, g := enter("a", 0)
	l.heard(g)
	silent, late := enter("a", 0)
	for range lobbyPerHost - 2 {
		enter("a", 0)
	}
	if silent.closed || spoken.closed {
		t.Error("sent away although there was room")
	}
	enter("a", 0)
	if !silent.closed || spoken.closed {
		t.Error("one that has greeted was sent away before one that is silent")
	}
	if l.leave(late) || !l.leave(g) {
		t.Error("who has been sent away has a place, or who has not has none")
	}
	for i := range 10 * lobbyPlaces {
		enter(fmt.Sprint("b", i), 0)
	}
	if n := len(l.guests); n != lobbyPlaces-lobbyReserved {
		t.Errorf("strangers have %d places, want %d", n, lobbyPlaces-lobbyReserved)
	}
	for i := range 2 * lobbyReserved {
		if _, g := enter(fmt.Sprint("m", i), 1); g == nil {
			t.Error("no place for a member")
		}
	}
	if n := len(l.guests); n != lobbyPlaces {
		t.Errorf("%d places are taken, want %d", n, lobbyPlaces)
	}
	for range 5 * lobbyPlaces {
		enter("nine members here", 9)
	}
	if _, g := enter("c", 0); g != nil || len(l.guests) != lobbyPlaces {
		t.Errorf("a stranger took a place of a member; %d places", len(l.guests))
	}
}

func TestAPeersHostIsKnownByItsAddressAndByWhereItWasMet(t *testing.T) {
	a, b := pair(t, func(n uint64, s *side) {
		if n == 2 {
			s.cfg.Peers[0].Address = "n1.invalid:7401"
		}
	})
	if n := a.peersAt("127.0.0.1"); n != 1 {
		t.Errorf("%d peers, want the one with that address", n)
	}
	eventually(t, "the peer was met", func() bool { return b.peersAt("127.0.0.1") == 1 })
	if n := a.peersAt("10.9.9.9"); n != 0 {
		t.Errorf("%d peers at the host of none", n)
	}
}
