package conformance

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
)

// detached takes a lock and returns its handle.
func detached(t *testing.T, c *cluster, name string) lockstep.Handle {
	t.Helper()
	k, _ := c.client(t, 10*time.Second)
	h, err := k.Detach(t.Context(), acquire(t, k, name))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// turns attaches the lock and uses it, and retries if another process attached in between, as the
// commands do.
func turns(ctx context.Context, k *client.Client, h lockstep.Handle, use func(lockstep.Lock) error) (err error) {
	for range 8 {
		l, err := k.Attach(ctx, h)
		if err != nil {
			return err
		}
		err = use(l)
		if loss, ok := errors.AsType[*lockstep.LossError](err); !ok || loss.Reason != lockstep.RecordMissing {
			return err
		}
	}
	return errors.New("lost the lock to another eight times")
}

func renew(ctx context.Context, k *client.Client, h lockstep.Handle) error {
	return turns(ctx, k, h, func(l lockstep.Lock) error { _, err := k.Detach(ctx, l); return err })
}

func TestParallelRenewalsWithOneHandleAllSucceed(t *testing.T) {
	c := startCluster(t, 3)
	c.leader()
	h := detached(t, c, "jobs/handle")
	const parallel, rounds = 6, 10
	clients := make([]*client.Client, parallel)
	for i := range clients {
		clients[i], _ = c.client(t, 10*time.Second)
	}
	for range rounds {
		began := time.Now()
		var renewals sync.WaitGroup
		for _, k := range clients {
			renewals.Go(func() {
				if err := renew(t.Context(), k, h); err != nil {
					t.Errorf("renew after %v: %v", time.Since(began), err)
				}
			})
		}
		renewals.Wait()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("a round of %d took %v", parallel, took)
		}
	}
	l, err := clients[0].Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	release(t, l)
}

func TestAReleaseBesideARenewalFreesTheLock(t *testing.T) {
	c := startCluster(t, 3)
	c.leader()
	a, _ := c.client(t, 10*time.Second)
	b, _ := c.client(t, 10*time.Second)
	for i := range 50 {
		h := detached(t, c, "jobs/handle")
		var both sync.WaitGroup
		both.Go(func() {
			time.Sleep(time.Duration(i%10) * 500 * time.Microsecond)
			// ErrLost: the release came first.
			if err := renew(t.Context(), a, h); err != nil && !errors.Is(err, lockstep.ErrLost) {
				t.Errorf("round %d: renew: %v", i, err)
			}
		})
		both.Go(func() {
			if err := turns(t.Context(), b, h, func(l lockstep.Lock) error { return l.Release(t.Context()) }); err != nil {
				t.Errorf("round %d: release: %v", i, err)
			}
		})
		both.Wait()
		release(t, acquire(t, a, "jobs/handle", lockstep.WithWait(time.Second))) // it is free
	}
}

// TestAHandleIsSharedByMachinesWhoseClocksDiffer: attachments are numbered by the wall clock, and
// the service accepts only rising numbers.
func TestAHandleIsSharedByMachinesWhoseClocksDiffer(t *testing.T) {
	c := startCluster(t, 1)
	c.leader()
	h := detached(t, c, "jobs/handle")
	k, _ := c.client(t, 10*time.Second)
	for _, ahead := range []time.Duration{24 * time.Hour, 0, time.Hour, 0} {
		began := time.Now()
		if err := renew(t.Context(), k, numbered(t, h, time.Now().Add(ahead))); err != nil {
			t.Errorf("a machine %v ahead: %v", ahead, err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("a machine %v ahead: renewed after %v", ahead, took)
		}
	}
}

// numbered returns the handle as a machine with this clock would use it.
func numbered(t *testing.T, h lockstep.Handle, clock time.Time) lockstep.Handle {
	t.Helper()
	prefix, body, _ := strings.Cut(string(h), ".")
	text, err := base64.RawURLEncoding.DecodeString(body)
	content := map[string]any{}
	if err = errors.Join(err, json.Unmarshal(text, &content)); err != nil {
		t.Fatal(err)
	}
	content["attach"] = clock.UnixMilli()
	text, err = json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return lockstep.Handle(prefix + "." + base64.RawURLEncoding.EncodeToString(text))
}
