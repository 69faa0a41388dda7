package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// telling makes a pair of which the second answers questions.
func telling(t *testing.T, audit func(from, to uint64) (io.ReadCloser, error)) *side {
	a, _ := pair(t, func(n uint64, s *side) {
		if n == 2 {
			s.cfg.Audit = audit
		}
	})
	return a
}

func TestAnAnswerFromTheAuditLogArrivesWhole(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789\n"), 30_000)
	a := telling(t, func(from, to uint64) (io.ReadCloser, error) {
		if from != 5 || to != 1<<40 {
			return nil, errors.New("another question")
		}
		return io.NopCloser(bytes.NewReader(content)), nil
	})
	for range 3 {
		answer, err := a.AskAudit(t.Context(), 2, 5, 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(answer)
		if err = errors.Join(err, answer.Close()); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%v, %d bytes came, %d were sent", err, len(got), len(content))
		}
	}
}

func TestANodeWithoutAnAuditLogSaysSo(t *testing.T) {
	a, _ := pair(t, nil)
	if _, err := a.AskAudit(t.Context(), 2, 1, 2); !errors.Is(err, ErrNoAudit) {
		t.Errorf("err = %v", err)
	}
	if _, err := a.AskAudit(t.Context(), 3, 1, 2); err == nil || errors.Is(err, ErrNoAudit) {
		t.Errorf("a node that is no peer: %v", err)
	}
}

// refusedWith returns the error of asking a peer that refuses the handshake with a text.
func refusedWith(t *testing.T, text string) error {
	a, _ := pair(t, func(n uint64, s *side) {
		if n == 2 {
			return
		}
		s.cfg.Dial = func(context.Context, string) (net.Conn, error) {
			own, other := net.Pipe()
			go func() {
				defer other.Close()
				c := newConn(other)
				if _, err := io.ReadFull(c.frames.r, make([]byte, len(preamble))); err != nil {
					return
				}
				if _, err := c.expect(frameHello); err == nil {
					// A failure shows as another error on the asking side.
					_, _ = c.Write(appendRefusal(nil, refusedOther, text))
				}
			}()
			return own, nil
		}
	})
	_, err := a.AskAudit(t.Context(), 2, 1, 2)
	return err
}

func TestANodeThatDoesNotKnowTheQuestionHasNoAuditLog(t *testing.T) {
	t.Parallel()
	if err := refusedWith(t, `purpose "audit" is not known`); !errors.Is(err, ErrNoAudit) {
		t.Errorf("err = %v", err)
	}
	if err := refusedWith(t, "this node is stopping"); !errors.Is(err, ErrRefused) || errors.Is(err, ErrNoAudit) {
		t.Errorf("err = %v", err)
	}
}

func TestABrokenAnswerIsAnError(t *testing.T) {
	for name, audit := range map[string]func(from, to uint64) (io.ReadCloser, error){
		"cannot be read": func(_, _ uint64) (io.ReadCloser, error) { return nil, errors.New("disk on fire") },
		"breaks off": func(_, _ uint64) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("disk on fire")))), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := telling(t, audit)
			answer, err := a.AskAudit(t.Context(), 2, 1, 2)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Close()
			if _, err := io.ReadAll(answer); err == nil || !strings.Contains(err.Error(), "disk on fire") || errors.Is(err, ErrNoAudit) {
				t.Errorf("err = %v", err)
			}
		})
	}
}

func TestOneAnswerAtATimeIsSent(t *testing.T) {
	inside, leave := make(chan struct{}, 2), make(chan struct{})
	a := telling(t, func(_, _ uint64) (io.ReadCloser, error) {
		inside <- struct{}{}
		<-leave
		return io.NopCloser(strings.NewReader("x")), nil
	})
	read := func(answer io.ReadCloser, err error) {
		if err == nil {
			_, err = io.ReadAll(answer)
			err = errors.Join(err, answer.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
	done := make(chan struct{})
	for range 2 {
		go func() {
			defer func() { done <- struct{}{} }()
			read(a.AskAudit(t.Context(), 2, 1, 2))
		}()
	}
	<-inside
	time.Sleep(50 * time.Millisecond)
	if len(inside) > 0 {
		t.Error("two are answered at once")
	}
	close(leave)
	<-done
	<-done
}

func TestAnAnswerThatDoesNotComeEndsWithItsContext(t *testing.T) {
	leave := make(chan struct{})
	a := telling(t, func(_, _ uint64) (io.ReadCloser, error) {
		<-leave
		return nil, errors.New("too late")
	})
	defer close(leave)
	ctx, cancel := context.WithCancel(t.Context())
	answer, err := a.AskAudit(ctx, 2, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	time.AfterFunc(20*time.Millisecond, cancel)
	began := time.Now()
	if _, err := io.ReadAll(answer); err == nil || time.Since(began) > contentTimeout/2 {
		t.Errorf("err = %v after %v", err, time.Since(began))
	}
}

func TestAnythingButAQuestionIsRefused(t *testing.T) {
	a := telling(t, func(_, _ uint64) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil })
	damaged := appendQuestion(nil, 1, 2)
	damaged[len(damaged)-1] ^= 1
	for name, frame := range map[string][]byte{
		"a damaged one":     damaged,
		"another frame":     appendFrame(nil, framePing, nil),
		"one of old length": appendFrame(nil, frameQuestion, make([]byte, 12)),
	} {
		c, _, err := a.dial(t.Context(), a.find(2).Peer, purposeAudit)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.send(frame); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(&contentReader{c: c}); err == nil || !strings.Contains(err.Error(), "request") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		c.Close()
	}
}
