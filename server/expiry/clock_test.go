package expiry_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lockstep-dev/lockstep/server/expiry"
)

const step = 100 * time.Millisecond

func TestTheClockRunsWithRealTimeInSmallSteps(t *testing.T) {
	c := expiry.NewClock(5*time.Second, step)
	for at := 5 * time.Second; at <= 65*time.Second; at += step {
		c.Advance(at, true)
	}
	if c.Now() != time.Minute {
		t.Errorf("it shows %v after a minute", c.Now())
	}
	if due := c.Settle(65 * time.Second); due != time.Minute {
		t.Errorf("due up to %v with nothing waiting", due)
	}
}

func TestAGapIsDroppedAndNeverMadeUp(t *testing.T) {
	c := expiry.NewClock(0, step)
	c.Advance(time.Hour, true)
	c.Advance(time.Hour+step/2, true)
	if got := c.Now(); got != step+step/2 {
		t.Errorf("it shows %v after a gap of an hour, want one step and what came after", got)
	}
}

func TestTheClockStandsStillWithoutRounds(t *testing.T) {
	c := expiry.NewClock(0, step)
	for at := step; at < 10*time.Second; at += step {
		c.Advance(at, false)
	}
	c.Advance(10*time.Second, true)
	if got := c.Now(); got != step {
		t.Errorf("it shows %v, want the last step alone", got)
	}
}

func TestAWaitingKeepAliveHoldsDeadlinesBackAndNotTheClock(t *testing.T) {
	c := expiry.NewClock(0, step)
	received := 300 * time.Millisecond
	for at := step; at <= time.Second; at += step {
		c.Advance(at, true)
		if due := c.Settle(min(at, received)); due > received {
			t.Fatalf("due up to %v at %v with a keepalive from %v waiting", due, at, received)
		}
	}
	if c.Now() != time.Second {
		t.Errorf("the clock shows %v", c.Now())
	}
	if due := c.Settle(time.Second); due != time.Second {
		t.Errorf("due up to %v once it is handled", due)
	}
	if due := c.Settle(received); due != time.Second {
		t.Errorf("what was due is no longer: %v", due)
	}
}

// Whatever happens, a deadline d from now does not pass before d of real time has passed, and not
// while a keepalive that is older than it waits.
func TestNoDeadlineComesEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := expiry.NewClock(0, step)
		var at, due, now time.Duration
		type deadline struct{ at, real time.Duration }
		var set []deadline
		for range rapid.IntRange(1, 60).Draw(t, "turns") {
			at += time.Duration(rapid.SampledFrom([]int64{0, 1, 5, 50, 100, 101, 250, 3000, 60000}).Draw(t, "passed")) * time.Millisecond
			c.Advance(at, rapid.Bool().Draw(t, "healthy"))
			if c.Now() < now {
				t.Fatalf("the clock fell from %v to %v", now, c.Now())
			}
			now = c.Now()
			d := time.Duration(rapid.Int64Range(0, 2000).Draw(t, "ttl")) * time.Millisecond
			set = append(set, deadline{c.Now() + d, at + d})
			oldest := at - time.Duration(rapid.Int64Range(0, 500).Draw(t, "waits"))*time.Millisecond
			before := due
			due = c.Settle(max(0, oldest))
			if due < before || due > now {
				t.Fatalf("due moved from %v to %v at %v", before, due, now)
			}
			for _, s := range set {
				if s.at <= due && s.real > at {
					t.Fatalf("the deadline for %v came at %v", s.real, at)
				}
				if s.at <= due && s.at > before && s.real > max(0, oldest) {
					t.Fatalf("the deadline for %v came while a keepalive from %v waited", s.real, oldest)
				}
			}
		}
	})
}

func TestAClockWithoutAStepIsRefused(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a step of zero was accepted")
		}
	}()
	expiry.NewClock(0, 0)
}

// A model of Deadlines: a list, in the order in which the deadlines were set.
type model []struct {
	key int
	at  time.Duration
}

func (m *model) drop(key int) {
	*m = slices.DeleteFunc(*m, func(e struct {
		key int
		at  time.Duration
	}) bool {
		return e.key == key
	})
}

func (m *model) set(key int, at time.Duration) {
	m.drop(key)
	*m = append(*m, struct {
		key int
		at  time.Duration
	}{key, at})
}

func (m *model) next(due time.Duration) (key int, ok bool) {
	first := -1
	for i, e := range *m {
		if e.at <= due && (first < 0 || e.at < (*m)[first].at) {
			first = i
		}
	}
	if first < 0 {
		return 0, false
	}
	key = (*m)[first].key
	m.drop(key)
	return key, true
}

func TestDeadlinesBehaveLikeASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d expiry.Deadlines[int]
		var m model
		for range rapid.IntRange(1, 200).Draw(t, "operations") {
			key := rapid.IntRange(0, 20).Draw(t, "key")
			at := time.Duration(rapid.Int64Range(0, 30).Draw(t, "at"))
			switch rapid.IntRange(0, 3).Draw(t, "operation") {
			case 0, 1:
				d.Set(key, at)
				m.set(key, at)
			case 2:
				d.Drop(key)
				m.drop(key)
			case 3:
				got, ok := d.Next(at)
				want, wantOK := m.next(at)
				if got != want || ok != wantOK {
					t.Fatalf("Next(%d) = %d, %v, want %d, %v", at, got, ok, want, wantOK)
				}
			}
			if d.Len() != len(m) {
				t.Fatalf("Len() = %d, want %d", d.Len(), len(m))
			}
			for _, e := range m {
				if at, ok := d.At(e.key); !ok || at != e.at {
					t.Fatalf("At(%d) = %v, %v, want %v", e.key, at, ok, e.at)
				}
			}
		}
	})
}

func BenchmarkRenewalOf50000Sessions(b *testing.B) {
	var d expiry.Deadlines[int]
	for i := range 50_000 {
		d.Set(i, time.Duration(i))
	}
	at := time.Second
	for i := 0; b.Loop(); i++ {
		at += time.Microsecond
		d.Set(i%50_000, at)
		d.Next(0)
	}
}
