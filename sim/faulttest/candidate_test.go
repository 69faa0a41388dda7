//go:build unix

package faulttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/election"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/fence/filefence"
	"github.com/lockstep-dev/lockstep/lease"
	"github.com/lockstep-dev/lockstep/sim/faulttest"
)

const (
	// candidateVariable makes the test binary a candidate; it holds its orders as JSON.
	candidateVariable = "LOCKSTEP_TEST_CANDIDATE"
	office            = "faults/office"
	// computing is how long a leader works between reading the resource and writing it. A leader
	// that is frozen in between writes late when it wakes.
	computing = 80 * time.Millisecond
	// turn bounds the wait for the file while another process is stopped in the middle of a step.
	turn = 300 * time.Millisecond
)

func TestMain(m *testing.M) {
	text := os.Getenv(candidateVariable)
	if text == "" {
		os.Exit(faulttest.Run(m))
	}
	if err := stand(text); err != nil {
		fmt.Fprintln(os.Stderr, "candidate:", err)
		os.Exit(1)
	}
}

// orders tell a candidate process what to do.
type orders struct {
	ID                int // of the process
	Endpoints, Behind []string
	Journal, Resource string
	TTL               time.Duration
}

// A contestant is a candidate process.
type contestant struct {
	orders
	journal *journal
	source  fence.Source
	file    *filefence.File
}

// stand campaigns until TERM, and leads whenever it is elected. USR1 makes it resign.
func stand(text string) error {
	var c contestant
	if err := json.Unmarshal([]byte(text), &c.orders); err != nil {
		return err
	}
	locker, err := client.New(client.Config{Endpoints: c.Behind, TTL: c.TTL, DialOptions: proxied(c.Endpoints, c.Behind)})
	if err != nil {
		return err
	}
	if err := c.open(locker); err != nil {
		return err
	}
	candidate, err := election.New(locker, office, election.Config{Identity: fmt.Sprintf("candidate %d", c.ID)})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	resigning := c.heedResign(ctx, candidate)
	if err := candidate.Run(ctx, c.lead); ctx.Err() == nil {
		return fmt.Errorf("run ended with %w", err)
	}
	<-resigning
	goodbye, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := locker.Close(goodbye); err != nil {
		return err
	}
	stop()
	return c.journal.note(entry{ID: c.ID, What: left, Note: leaks()})
}

func (c *contestant) open(locker *client.Client) (err error) {
	if c.journal, err = openJournal(c.Journal); err != nil {
		return err
	}
	if c.source, err = fence.For(locker, "faulttest", office); err != nil {
		return err
	}
	c.file, err = filefence.Open(c.Resource, filefence.Config{Wait: turn})
	return err
}

// heedResign resigns on each USR1 until ctx is done; then the channel is closed.
func (c *contestant) heedResign(ctx context.Context, candidate *election.Candidate) <-chan struct{} {
	ended, signals := make(chan struct{}), make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		defer close(ended)
		defer signal.Stop(signals)
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
				if candidate.Resign() == nil {
					c.note(resigned, 0, 0)
				}
			}
		}
	}()
	return ended
}

func leaks() string {
	if err := goleak.Find(); err != nil {
		return err.Error()
	}
	return ""
}

// note ends the process if it cannot write: a journal with a gap proves nothing.
func (c *contestant) note(w what, token lockstep.Token, n int) {
	if err := c.journal.note(entry{ID: c.ID, What: w, Token: token, N: n}); err != nil {
		panic(err)
	}
}

// lead adds lines to the resource until the term is over.
func (c *contestant) lead(ctx context.Context, token lockstep.Token) error {
	c.note(began, token, 0)
	defer c.note(ended, token, 0)
	defer context.AfterFunc(ctx, func() { c.note(over, token, 0) })()
	grant := c.source.Grant(token)
	entered := false
	for ctx.Err() == nil {
		n, err := c.add(context.WithoutCancel(ctx), grant, &entered)
		switch {
		case err == nil:
			c.note(wrote, token, n)
		case errors.Is(err, fence.ErrStale):
			c.note(refused, token, n)
			return err
		case errors.Is(err, fence.ErrBusy), errors.Is(err, lockstep.ErrUncertain):
			c.note(busy, token, n)
		default:
			return err
		}
	}
	return nil
}

// add reads the resource and writes it with one more line. Its context does not end with the term:
// a write in flight cannot be recalled.
func (c *contestant) add(ctx context.Context, grant fence.Grant, entered *bool) (n int, err error) {
	if !*entered {
		if err := c.file.Enter(ctx, grant); err != nil {
			return 0, err
		}
		*entered = true
	}
	data, err := c.file.Read(ctx)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	all, err := linesOf(data)
	if err != nil {
		return 0, err
	}
	if last := len(all) - 1; last >= 0 && all[last].token == grant.Token {
		n = all[last].n
	}
	time.Sleep(computing)
	next := line{grant.Token, n + 1}
	return next.n, c.file.Write(ctx, grant, append(data, next.String()...))
}

// now reads the clock that all processes of the machine share.
func now() time.Duration { return lease.SystemClock().Now() }
