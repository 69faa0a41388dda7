package election_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/election"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/fence/filefence"
	"github.com/lockstep-dev/lockstep/memlock"
)

// One of many processes runs the scheduler. When the work is done, so is the election.
func Example() {
	var locker lockstep.Locker = memlock.New() // or a client of the service, etcd, Postgres, ...
	c, err := election.New(locker, "billing/scheduler", election.Config{Identity: "host-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = c.Run(context.Background(), func(ctx context.Context, token lockstep.Token) error {
		fmt.Println(c.Identity(), "leads with token", token)
		return nil
	})
	fmt.Println(err)
	// Output:
	// host-1 leads with token 1
	// <nil>
}

// A ledger is a store that outlives its writers and refuses those whose term has passed.
type ledger struct {
	mu   sync.Mutex
	mark lockstep.Token
	done int
}

var errStale = errors.New("ledger: token is older than one seen before")

// next raises the mark before the first read, so that a former leader cannot change
// what this one has read.
func (l *ledger) next(token lockstep.Token) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token < l.mark {
		return 0, errStale
	}
	l.mark = token
	return l.done + 1, nil
}

func (l *ledger) finish(token lockstep.Token, invoice int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token < l.mark {
		return errStale
	}
	l.done = invoice
	return nil
}

// A restartable body. It keeps nothing from an earlier term: at the start it reads from the store
// how far the work has progressed, even if another leader did it. It returns when its context is
// done, and resumes the work in its next term.
func ExampleCandidate_Run_restartable() {
	locker := memlock.New(memlock.WithTTL(time.Second))
	store := &ledger{}
	c, err := election.New(locker, "billing/invoices", election.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = c.Run(context.Background(), func(ctx context.Context, token lockstep.Token) error {
		invoice, err := store.next(token)
		if err != nil {
			return err
		}
		fmt.Println("term", token, "begins with invoice", invoice)
		for ; invoice <= 5; invoice++ {
			if ctx.Err() != nil {
				fmt.Println("term", token, "is over:", context.Cause(ctx))
				return nil // Run campaigns again
			}
			if err := store.finish(token, invoice); err != nil {
				return err
			}
			if invoice == 3 {
				locker.Expire() // the lease is lost in the middle
			}
		}
		return nil
	})
	fmt.Println("done", store.done, err)
	// Output:
	// term 1 begins with invoice 1
	// term 1 is over: lockstep: lock lost: session expired
	// term 2 begins with invoice 4
	// done 5 <nil>
}

// Both halves: the context stops a leader whose term is over, and the token stops one that cannot
// know it. The first leader is frozen in the middle of its work; the resource refuses its late
// write.
func ExampleCandidate_Run_guarded() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	locker := memlock.New()
	c, errNew := election.New(locker, "billing/report", election.Config{})
	source, errFor := fence.For(locker, "prod", "billing/report") // refuses a backend whose tokens do not rise
	file, errOpen := filefence.Open(filepath.Join(dir, "report"), filefence.Config{})
	if err := errors.Join(errNew, errFor, errOpen); err != nil {
		fmt.Println(err)
		return
	}
	var frozen fence.Grant
	err = c.Run(context.Background(), func(ctx context.Context, token lockstep.Token) error {
		grant := source.Grant(token)
		if err := file.Enter(ctx, grant); err != nil { // before the first read
			return err
		}
		if frozen.Token == 0 {
			frozen = grant
			locker.Expire() // it freezes here, and its lease ends
			return ctx.Err()
		}
		return file.Write(ctx, grant, []byte("the second leader's"))
	})
	fmt.Println("run:", err)
	late := file.Write(context.Background(), frozen, []byte("the first leader's"))
	fmt.Println("the late write is refused:", errors.Is(late, fence.ErrStale))
	report, err := file.Read(context.Background())
	fmt.Printf("report: %s %v\n", report, err)
	// Output:
	// run: <nil>
	// the late write is refused: true
	// report: the second leader's <nil>
}

// Anyone can follow who leads. Having no leader is an event too.
func ExampleObserve() {
	space := memlock.NewSpace()
	c, err := election.New(space.Locker(), "billing/scheduler", election.Config{Identity: "host-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	leading, ended := make(chan struct{}), make(chan error, 1)
	shown := 0
	for leader, err := range election.Observe(ctx, space.Locker(), "billing/scheduler") {
		switch {
		case err != nil:
			fmt.Println(err)
			return
		case leader.Nobody():
			fmt.Println("nobody leads")
		default:
			fmt.Println(leader.Identity, "leads with token", leader.Token)
		}
		switch shown++; shown {
		case 1:
			go func() {
				ended <- c.Run(ctx, func(ctx context.Context, _ lockstep.Token) error {
					close(leading)
					<-ctx.Done()
					return ctx.Err()
				})
			}()
		case 2:
			<-leading // an observer may know before the term begins here
			if err := c.StepDown(time.Hour); err != nil {
				fmt.Println(err)
			}
		case 3:
			stop()
		}
	}
	fmt.Println(<-ended)
	// Output:
	// nobody leads
	// host-1 leads with token 1
	// nobody leads
	// context canceled
}

// A leader that finds itself unfit gives up leadership and stays out of the election for a while.
func ExampleCandidate_StepDown() {
	space := memlock.NewSpace()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	a, errA := election.New(space.Locker(), "billing/scheduler", election.Config{Identity: "host-1"})
	b, errB := election.New(space.Locker(), "billing/scheduler", election.Config{Identity: "host-2"})
	if err := errors.Join(errA, errB); err != nil {
		fmt.Println(err)
		return
	}
	other := make(chan error, 1)
	err := a.Run(ctx, func(leading context.Context, _ lockstep.Token) error {
		go func() {
			other <- b.Run(ctx, func(context.Context, lockstep.Token) error {
				fmt.Println(b.Identity(), "leads")
				stop()
				return nil
			})
		}()
		fmt.Println(a.Identity(), "steps down")
		if err := a.StepDown(10 * time.Minute); err != nil {
			return err
		}
		fmt.Println(context.Cause(leading))
		return nil
	})
	fmt.Println(err)
	fmt.Println(<-other)
	// Output:
	// host-1 steps down
	// election: leader resigned
	// host-2 leads
	// context canceled
	// <nil>
}

// The health of a candidate as a liveness probe: it fails for a leader that cannot renew its
// lease, and for one that does not stop when its term is over.
func ExampleCandidate_Healthy() {
	c, err := election.New(memlock.New(), "billing/scheduler", election.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	livez := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := c.Healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	answer := httptest.NewRecorder()
	livez.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/livez", nil))
	fmt.Println(answer.Code)
	// Output:
	// 200
}
