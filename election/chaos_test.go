package election_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/election"
	"github.com/lockstep-dev/lockstep/memlock"
)

const candidates = 8

// There are two kinds of faults. After the first kind a lock is free only when its holder has
// acknowledged the loss or its lease has ended; the second kind takes it away from under the
// holder.
const (
	faultsThatLeaveTheLease = 7
	allFaults               = 9
)

// TestTermsNeverOverlap has candidates lead and write to a guarded resource while they are cut off,
// revoked, resigned and stopped: a body that returns within Drain never overlaps with the next.
func TestTermsNeverOverlap(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := chaos(t, seed, faultsThatLeaveTheLease)
				if o.overlaps != 0 || o.refused != 0 {
					t.Errorf("%d terms began before the last body had returned, %d writes were refused", o.overlaps, o.refused)
				}
			})
		})
	}
}

// TestNoTwoLeadersBelieve adds what no election can wait for: sessions that end and records that
// vanish under the leader. The guard then refuses late writes, but never a write that a candidate
// makes while its context says that it leads.
func TestNoTwoLeadersBelieve(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := chaos(t, seed, allFaults)
				if o.overlaps == 0 || o.refused == 0 {
					t.Errorf("%d overlaps and %d writes refused: too few to show anything", o.overlaps, o.refused)
				}
			})
		})
	}
}

// An office tracks what its candidates do at the same time.
type office struct {
	t       *testing.T
	space   *memlock.Space
	lockers []*memlock.Locker
	all     []*election.Candidate
	drain   time.Duration

	mu      sync.Mutex
	bodies  map[*election.Candidate]context.Context // those that are running
	begun   int
	ended   int
	last    lockstep.Token // of the latest term
	mark    lockstep.Token // the guard: the highest token written
	written int
	refused int
	// overlaps counts the terms that began before the body of another had returned.
	overlaps int
}

func chaos(t *testing.T, seed uint64, faults int) *office {
	o := &office{t: t, space: memlock.NewSpace(), drain: 3 * time.Second, bodies: map[*election.Candidate]context.Context{}}
	for range candidates {
		l := o.space.Locker()
		o.lockers = append(o.lockers, l)
		o.all = append(o.all, candidate(t, l, election.Config{Drain: o.drain}))
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	var wg sync.WaitGroup
	for i, c := range o.all {
		wg.Go(func() { o.stand(ctx, c, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	wg.Go(func() { o.hurt(ctx, rand.New(rand.NewPCG(seed, 99)), faults) })
	wg.Wait()
	time.Sleep(time.Minute) // cut-off requests are undone
	if held(t, o.lockers[0]) {
		t.Error("the lock is held after all have gone")
	}
	if o.begun != o.ended || len(o.bodies) != 0 {
		t.Errorf("%d terms began, %d ended", o.begun, o.ended)
	}
	if o.begun < 100 || o.written < 500 {
		t.Errorf("%d terms, %d writes: too few to show anything", o.begun, o.written)
	}
	return o
}

// stand runs the candidate repeatedly: a body that finishes ends its Run.
func (o *office) stand(ctx context.Context, c *election.Candidate, r *rand.Rand) {
	for ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(ctx, upTo(r, 10*time.Minute))
		err := c.Run(ctx, func(ctx context.Context, token lockstep.Token) error {
			o.begin(ctx, c, token)
			defer o.end(c)
			return o.work(ctx, token, r)
		})
		if err != nil && err != errWork && !errors.Is(err, context.DeadlineExceeded) {
			o.t.Errorf("Run = %v", err)
		}
		cancel()
	}
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// work writes until it is done or its term is over; then it lingers, but no longer than Drain, and
// writes once more, too late.
func (o *office) work(ctx context.Context, token lockstep.Token, r *rand.Rand) error {
	enough := time.Now().Add(upTo(r, 5*time.Minute))
	for time.Now().Before(enough) {
		if ctx.Err() != nil {
			time.Sleep(upTo(r, o.drain))
			o.write(token)
			return context.Cause(ctx)
		}
		if !o.write(token) {
			o.t.Errorf("token %d was refused while its term is not over", token)
		}
		select {
		case <-ctx.Done():
		case <-time.After(upTo(r, 10*time.Second)):
		}
	}
	return []error{nil, errWork}[r.IntN(2)]
}

// write is the guarded resource: it refuses a token that is older than one it has seen.
func (o *office) write(token lockstep.Token) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if token < o.mark {
		o.refused++
		return false
	}
	o.mark = token
	o.written++
	return true
}

// begin checks whether anyone else leads or is still working, and whether the tokens rise.
func (o *office) begin(ctx context.Context, c *election.Candidate, token lockstep.Token) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begun++
	if o.bodies[c] != nil {
		o.t.Error("a second term began before the body of the first had returned")
	}
	for other, running := range o.bodies {
		if running.Err() == nil {
			o.t.Errorf("the term of token %d began while %s leads", token, other.Identity())
		}
		o.overlaps++
	}
	if token <= o.last {
		o.t.Errorf("token %d after %d", token, o.last)
	}
	o.last, o.bodies[c] = token, ctx
}

func (o *office) end(c *election.Candidate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended++
	delete(o.bodies, c)
}

// hurt injects one of the faults into a candidate every few seconds, and heals at the end.
func (o *office) hurt(ctx context.Context, r *rand.Rand, faults int) {
	cut := map[*memlock.Locker]bool{}
	for ctx.Err() == nil {
		time.Sleep(upTo(r, 10*time.Second))
		i := r.IntN(candidates)
		if lead := o.leader(); lead >= 0 && r.IntN(2) == 0 {
			i = lead
		}
		l := o.lockers[i]
		switch r.IntN(faults) {
		case 0, 1:
			l.Cut()
			cut[l] = true
		case 2, 3, 4:
			for l := range cut { // the order does not matter
				l.Heal()
			}
			clear(cut)
		case 5:
			o.space.Revoke("leader", "alice")
		case 6:
			o.all[i].StepDown(upTo(r, time.Minute))
		case 7:
			if !cut[l] { // otherwise its holder could not know
				l.Expire()
			}
		case 8:
			if len(cut) == 0 {
				o.space.Delete("leader")
			}
		}
	}
	for l := range cut { // the order does not matter
		l.Heal()
	}
}

// leader returns the index of the candidate that leads, or -1.
func (o *office) leader() int {
	for i, c := range o.all {
		if c.IsLeader() {
			return i
		}
	}
	return -1
}

// TestTheNextLeaderComesInTime kills, cuts off, resigns and stops the leader of eight and measures
// how long there is no leader.
func TestTheNextLeaderComesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		o := &office{t: t, space: memlock.NewSpace()}
		var stands []*stand
		add := func() {
			l := o.space.Locker()
			s := run(t, l, election.Config{})
			o.lockers, o.all, stands = append(o.lockers, l), append(o.all, s.Candidate), append(stands, s)
		}
		for range candidates {
			add()
		}
		for range 90 { // 3 minutes of faults
			time.Sleep(upTo(r, 4*time.Second))
			i := o.leader()
			limit, fault := time.Second, r.IntN(3)
			start := time.Now()
			switch fault {
			case 0: // killed or cut off: it is not heard from again
				o.lockers[i].Cut()
				limit = ttl + memlock.Grace + time.Second
			case 1:
				if err := stands[i].Resign(); err != nil {
					t.Fatal(err)
				}
			case 2:
				stands[i].cancel()
			}
			for next := i; next == i || next < 0; next = o.leader() {
				if time.Since(start) > limit {
					t.Fatalf("fault %d: nobody leads after %v", fault, limit)
				}
				time.Sleep(10 * time.Millisecond)
			}
			o.lockers[i].Heal()
			if fault == 2 {
				add()
			}
		}
	})
}

// A thousand candidates wait for leadership; the leader leaves again and again.
func TestAThousandCandidates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		terms := make(chan *election.Candidate, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 1000 {
			c := candidate(t, space.Locker(), election.Config{})
			wg.Go(func() {
				c.Run(ctx, func(ctx context.Context, _ lockstep.Token) error {
					terms <- c
					<-ctx.Done()
					return nil
				})
			})
		}
		seen := map[*election.Candidate]bool{}
		for range 1000 {
			c := <-terms
			seen[c] = true
			if err := c.StepDown(time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if len(seen) != 1000 {
			t.Errorf("%d of 1000 candidates led in as many terms", len(seen))
		}
		cancel()
		wg.Wait()
	})
}
