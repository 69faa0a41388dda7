package conformance

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/client"
)

// TestAThousandWaiters is the crowd of accept/storm.sh: 1,000 clients, each with its own session,
// that want a lock of the cluster at LOCKSTEP_TEST_STORM while it grants nothing. It creates the
// file LOCKSTEP_TEST_STORM_WAITING once all of them wait.
func TestAThousandWaiters(t *testing.T) {
	endpoints := os.Getenv("LOCKSTEP_TEST_STORM")
	if endpoints == "" {
		t.Skip("needs the cluster of accept/storm.sh")
	}
	const waiters = 1000
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var opened, granted sync.WaitGroup
	opened.Add(waiters)
	took := make([]time.Duration, waiters)
	for i := range waiters {
		opens := sync.OnceFunc(opened.Done)
		k, err := client.New(client.Config{
			Endpoints: strings.Split(endpoints, ","), UnavailableAfter: -1,
			Observer: observerFunc(func(e client.Event) {
				if e.Kind == client.SessionOpened {
					opens()
				}
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close(context.WithoutCancel(ctx))
		granted.Go(func() {
			began := time.Now()
			l, err := k.Acquire(ctx, fmt.Sprintf("storm/%d", i))
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			took[i] = time.Since(began)
			_ = l.Release(ctx)
		})
		time.Sleep(2 * time.Millisecond) // 500 connections a second are enough
	}
	opened.Wait()
	if err := os.WriteFile(os.Getenv("LOCKSTEP_TEST_STORM_WAITING"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	granted.Wait()
	t.Logf("all granted %v after they waited", time.Since(began).Round(time.Millisecond))
}

type observerFunc func(client.Event)

func (f observerFunc) Observe(e client.Event) { f(e) }
