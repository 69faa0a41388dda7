package lease_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/lease"
)

const (
	ttl   = 10 * time.Second
	valid = 9800 * time.Millisecond // ttl minus the margin of ttl/50
	ms    = time.Millisecond
)

// opened returns a lease whose opening was sent at 0 and confirmed.
func opened(t *testing.T) *lease.State {
	t.Helper()
	st := lease.New(ttl)
	if !st.Confirm(ms, st.Sending(0)) {
		t.Fatal("the opening was not confirmed")
	}
	return st
}

func TestLeaseCountsFromTheSendingAndNotFromTheAnswer(t *testing.T) {
	st := lease.New(ttl)
	attempt := st.Sending(5 * time.Second)
	if st.Valid(5*time.Second) || st.ValidUntil() != 0 {
		t.Error("valid before it was confirmed")
	}
	st.Confirm(8*time.Second, attempt)
	if got, want := st.ValidUntil(), 5*time.Second+valid; got != want {
		t.Errorf("valid until %v, want %v", got, want)
	}
}

func TestLeaseEndsExactlyAtValidUntil(t *testing.T) {
	st := opened(t)
	if !st.Valid(valid-1) || st.Remaining(valid-1) != 1 || st.Over(valid-1) {
		t.Error("over before its end")
	}
	if st.Valid(valid) || st.Remaining(valid) != 0 || !st.Over(valid) {
		t.Error("valid at its end")
	}
	if st.NextSend(valid) != lease.Never {
		t.Error("renewed when over")
	}
}

const second = time.Second

// confirmations follow an opening that was sent at 0.
var confirmations = []struct {
	name string
	do   func(st *lease.State) bool
	want bool
	end  time.Duration
}{
	{"of an attempt moves the end to its sending", func(st *lease.State) bool {
		return st.Confirm(3*second, st.Sending(2*second))
	}, true, 2*second + valid},
	{"of an unknown attempt changes nothing", func(st *lease.State) bool {
		return st.Confirm(2*second, 99)
	}, false, valid},
	{"of attempt zero changes nothing", func(st *lease.State) bool {
		return st.Confirm(2*second, 0)
	}, false, valid},
	{"that comes twice changes nothing", func(st *lease.State) bool {
		n := st.Sending(2 * second)
		st.Confirm(3*second, n)
		return st.Confirm(4*second, n)
	}, false, 2*second + valid},
	{"of an older attempt does not move the end back", func(st *lease.State) bool {
		older, newer := st.Sending(2*second), st.Sending(4*second)
		st.Confirm(5*second, newer)
		return st.Confirm(5*second, older)
	}, false, 4*second + valid},
	{"of an older attempt does not get the TTL that came later", func(st *lease.State) bool {
		older, newer := st.Sending(2*second), st.Sending(3*second)
		st.Confirm(5*second, newer)
		st.Adopt(30 * second)
		return st.Confirm(5*second, older)
	}, false, 3*second + valid},
	{"counts the attempt that was answered, not the last one sent", func(st *lease.State) bool {
		older := st.Sending(2 * second)
		st.Sending(4 * second)
		return st.Confirm(5*second, older)
	}, true, 2*second + valid},
	{"that is handled after the end does not bring it back, though nobody looked", func(st *lease.State) bool {
		return st.Confirm(valid, st.Sending(5*second))
	}, false, valid},
	{"after somebody saw the end does not bring it back", func(st *lease.State) bool {
		n := st.Sending(5 * second)
		st.Valid(valid)
		return st.Confirm(valid-1, n) // its clock was read before
	}, false, valid},
	{"after End changes nothing", func(st *lease.State) bool {
		n := st.Sending(5 * second)
		st.End()
		return st.Confirm(6*second, n)
	}, false, valid},
	{"of an attempt older than 64 sendings is ignored", func(st *lease.State) bool {
		n := st.Sending(second)
		for range 64 {
			st.Sending(2 * second)
		}
		return st.Confirm(3*second, n)
	}, false, valid},
	{"of an attempt 63 sendings old counts", func(st *lease.State) bool {
		n := st.Sending(second)
		for range 63 {
			st.Sending(2 * second)
		}
		return st.Confirm(3*second, n)
	}, true, second + valid},
}

func TestConfirmation(t *testing.T) {
	for _, test := range confirmations {
		t.Run(test.name, func(t *testing.T) {
			st := opened(t)
			if got := test.do(st); got != test.want {
				t.Errorf("confirm = %v, want %v", got, test.want)
			}
			if got := st.ValidUntil(); got != test.end {
				t.Errorf("valid until %v, want %v", got, test.end)
			}
		})
	}
}

func TestAdoptedTTLCounts(t *testing.T) {
	st := opened(t)
	st.Adopt(30 * time.Second)
	if got := st.ValidUntil(); got != valid {
		t.Errorf("a longer TTL moved the end to %v before a confirmation", got)
	}
	st.Confirm(3*time.Second, st.Sending(2*time.Second))
	if got, want := st.ValidUntil(), 2*time.Second+30*time.Second-600*ms; got != want {
		t.Errorf("valid until %v, want %v", got, want)
	}
	st.Adopt(4 * time.Second)
	if got, want := st.ValidUntil(), 2*time.Second+3900*ms; got != want {
		t.Errorf("a shorter TTL leaves the end at %v, want %v", got, want)
	}
	if got, want := st.NextSend(3*time.Second), 2*time.Second+4*time.Second/3; got != want {
		t.Errorf("next renewal at %v, want %v", got, want)
	}
}

func TestTooShortTTLIsRefused(t *testing.T) {
	for _, short := range []time.Duration{0, -1, 100 * ms, 300 * ms} {
		if lease.Check(short) == nil {
			t.Errorf("ttl %v is accepted", short)
		}
	}
	if err := lease.Check(time.Second); err != nil {
		t.Errorf("ttl 1s: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("New(0) does not panic")
		}
	}()
	lease.New(0)
}

func TestMarginPaysForTwoPercent(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		time.Second: 100 * ms, 5 * time.Second: 100 * ms, 10 * time.Second: 200 * ms, 300 * time.Second: 6 * time.Second,
	} {
		if got := lease.Margin(ttl); got != want {
			t.Errorf("margin of %v is %v, want %v", ttl, got, want)
		}
		// A holder whose clock is 2 % slow measures the rest of the TTL as it ends.
		if held := float64(ttl-lease.Margin(ttl)) / 0.98; held > float64(ttl)+1 {
			t.Errorf("ttl %v: a slow holder believes in it for %v", ttl, time.Duration(held))
		}
	}
}

// TestHolderNeverOutlivesTheServer plays random histories of a lease against a server
// that handles each renewal some time after it was sent, with messages lost,
// late and in any order, and clocks that differ by up to 2 %.
func TestHolderNeverOutlivesTheServer(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		g := game{r: r, rate: 0.98 + 0.04*r.Float64(), st: lease.New(ttl)}
		for range 100 {
			if broken := g.step(); broken != "" {
				t.Fatalf("seed %d at %v: %s", seed, g.real, broken)
			}
		}
	}
}

// A game is one holder, one server and the messages between them.
type game struct {
	r    *rand.Rand
	st   *lease.State
	real time.Duration // by the server's clock
	rate float64       // of the holder's clock relative to it, at least 0.98

	requests, answers []uint64
	serverUntil       time.Duration // when the server may grant the lock to another
	over              bool          // the holder has once reported it over
	until             time.Duration
}

func (g *game) now() time.Duration { return time.Duration(float64(g.real) * g.rate) }

func (g *game) step() (broken string) {
	g.real += time.Duration(g.r.Int64N(int64(ttl / 4)))
	switch g.r.IntN(4) {
	case 0:
		g.requests = append(g.requests, g.st.Sending(g.now()))
	case 1: // the server handles one, unless it has ended the lease already
		if n, ok := g.take(&g.requests); ok && (g.serverUntil == 0 || g.real < g.serverUntil) {
			g.serverUntil = g.real + ttl
			g.answers = append(g.answers, n)
		}
	case 2:
		if n, ok := g.take(&g.answers); ok {
			g.st.Confirm(g.now(), n)
		}
	}
	return g.judge()
}

// take removes any message; one in four stays to be delivered again, or is lost.
func (g *game) take(queue *[]uint64) (uint64, bool) {
	if len(*queue) == 0 {
		return 0, false
	}
	i := g.r.IntN(len(*queue))
	n := (*queue)[i]
	if g.r.IntN(4) != 0 {
		*queue = append((*queue)[:i], (*queue)[i+1:]...)
	}
	return n, g.r.IntN(4) != 0
}

func (g *game) judge() (broken string) {
	believed := g.st.Valid(g.now())
	switch {
	case believed && g.real >= g.serverUntil:
		return "the holder believes in a lease that the server has ended"
	case believed && g.over:
		return "a lease came back to life"
	case g.st.ValidUntil() < g.until:
		return "the end moved back"
	}
	g.over = g.over || g.st.Over(g.now())
	g.until = g.st.ValidUntil()
	return ""
}

func TestALeaseThatBeganBeforeTheSendingCountsFromThere(t *testing.T) {
	st := lease.New(10 * time.Second)
	st.Confirm(0, st.Sending(0))
	attempt := st.Sending(3 * time.Second)
	if !st.ConfirmSince(3*time.Second, attempt, 2*time.Second) || st.ValidUntil() != 11800*time.Millisecond {
		t.Errorf("valid until %v, want 11.8s", st.ValidUntil())
	}
	attempt = st.Sending(4 * time.Second)
	if st.ConfirmSince(4*time.Second, attempt, time.Second) || st.ValidUntil() != 11800*time.Millisecond {
		t.Errorf("valid until %v after an older beginning, want 11.8s", st.ValidUntil())
	}
	if !st.ConfirmSince(4*time.Second, attempt, 5*time.Second) || st.ValidUntil() != 13800*time.Millisecond {
		t.Errorf("valid until %v after a beginning behind the sending, want 13.8s", st.ValidUntil())
	}
}
