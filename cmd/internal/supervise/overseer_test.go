//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstep-dev/lockstep"
)

// A moment is one call to an overseer and the orders it should return.
type moment struct {
	at         time.Duration
	validUntil time.Duration
	over       error
	signal     unix.Signal // instead of a look
	want       string
}

func (o orders) String() string {
	var words []string
	for _, sig := range o.signals {
		words = append(words, unix.SignalName(sig))
	}
	if o.kill {
		words = append(words, "KILL!")
	}
	if o.feed > 0 {
		words = append(words, "feed "+o.feed.String())
	}
	return strings.Join(words, " ")
}

func TestTheOverseer(t *testing.T) {
	const s = time.Second
	revoked := &lockstep.LossError{Reason: lockstep.Revoked, By: "alice"}
	ended := &lockstep.LossError{Reason: lockstep.LeaseEnded}
	for _, c := range []struct {
		name    string
		moments []moment
		lost    bool
	}{
		{"a renewed lease feeds the watcher when it moves, and only then", []moment{
			{at: 1 * s, validUntil: 10 * s, want: "feed 10s"},
			{at: 2 * s, validUntil: 10 * s, want: ""},
			{at: 3 * s, validUntil: 9 * s, want: ""},
			{at: 4 * s, validUntil: 13 * s, want: "feed 13s"},
		}, false},
		{"without renewal TERM comes kill-after before the end, and KILL at the end", []moment{
			{at: 1 * s, validUntil: 10 * s, want: "feed 10s"},
			{at: 7999 * time.Millisecond, validUntil: 10 * s, want: ""},
			{at: 8 * s, validUntil: 10 * s, want: "SIGTERM SIGCONT"},
			{at: 9 * s, validUntil: 10 * s, want: ""},
			{at: 10 * s, validUntil: 10 * s, want: "KILL!"},
			{at: 11 * s, over: ended, want: ""},
		}, true},
		{"a renewal after TERM changes nothing", []moment{
			{at: 1 * s, validUntil: 10 * s, want: "feed 10s"},
			{at: 8 * s, validUntil: 10 * s, want: "SIGTERM SIGCONT"},
			{at: 9 * s, validUntil: 18 * s, want: ""},
			{at: 10 * s, validUntil: 18 * s, want: "KILL!"},
		}, true},
		{"a lease that is over gets KILL without TERM", []moment{
			{at: 1 * s, validUntil: 10 * s, want: "feed 10s"},
			{at: 31 * s, validUntil: 31 * s, over: ended, want: "KILL!"},
		}, true},
		{"a lease whose end has passed gets KILL even if no loss is reported", []moment{
			{at: 1 * s, validUntil: 10 * s, want: "feed 10s"},
			{at: 31 * s, validUntil: 10 * s, want: "KILL!"},
		}, true},
		{"a session that expired gets KILL at once", []moment{
			{at: 1 * s, validUntil: 10 * s, want: "feed 10s"},
			{at: 2 * s, over: &lockstep.LossError{Reason: lockstep.SessionExpired}, want: "KILL!"},
		}, true},
		{"a revoked lock gets TERM, and KILL after kill-after", []moment{
			{at: 1 * s, validUntil: 10 * s, want: "feed 10s"},
			{at: 2 * s, validUntil: 2 * s, over: revoked, want: "SIGTERM SIGCONT"},
			{at: 3 * s, validUntil: 3 * s, over: revoked, want: ""},
			{at: 4 * s, validUntil: 4 * s, over: revoked, want: "KILL!"},
		}, true},
		{"KILL of a revoked lock comes at the end of the lease at the latest", []moment{
			{at: 1 * s, validUntil: 10 * s, want: "feed 10s"},
			{at: 7500 * time.Millisecond, validUntil: 10 * s, want: ""},
			{at: 9 * s, over: revoked, want: "SIGTERM SIGCONT"},
			{at: 10 * s, over: revoked, want: "KILL!"},
		}, true},
		{"a lock revoked long ago gets KILL at once", []moment{
			{at: 1 * s, validUntil: 10 * s, want: "feed 10s"},
			{at: 12 * s, over: revoked, want: "SIGTERM SIGCONT KILL!"},
		}, true},
		{"signals are passed on, and CONT follows those that ask for an end", []moment{
			{at: 1 * s, validUntil: 10 * s, want: "feed 10s"},
			{at: 2 * s, signal: unix.SIGUSR1, want: "SIGUSR1"},
			{at: 2 * s, signal: unix.SIGTERM, want: "SIGTERM SIGCONT"},
			{at: 2 * s, signal: unix.SIGTSTP, want: "SIGTSTP"},
		}, false},
		{"the second interrupt sends TERM, KILL after kill-after, and is not a loss", []moment{
			{at: 1 * s, validUntil: 10 * s, want: "feed 10s"},
			{at: 2 * s, signal: unix.SIGINT, want: "SIGINT SIGCONT"},
			{at: 3 * s, signal: unix.SIGINT, want: "SIGTERM SIGCONT"},
			{at: 4 * s, signal: unix.SIGINT, want: "SIGINT SIGCONT"},
			{at: 5 * s, validUntil: 14 * s, want: "KILL! feed 14s"},
			// The process may never end: the lock is kept.
			{at: 6 * s, validUntil: 15 * s, want: "feed 15s"},
		}, false},
		{"a loss after the second interrupt counts as a loss", []moment{
			{at: 1 * s, validUntil: 10 * s, want: "feed 10s"},
			{at: 2 * s, signal: unix.SIGINT, want: "SIGINT SIGCONT"},
			{at: 3 * s, signal: unix.SIGINT, want: "SIGTERM SIGCONT"},
			{at: 4 * s, over: ended, want: "KILL!"},
		}, true},
		{"after the second interrupt KILL comes at the end of a lease that is not renewed", []moment{
			{at: 1 * s, validUntil: 10 * s, want: "feed 10s"},
			{at: 8500 * time.Millisecond, validUntil: 11 * s, want: "feed 11s"},
			{at: 8600 * time.Millisecond, signal: unix.SIGINT, want: "SIGINT SIGCONT"},
			{at: 9100 * time.Millisecond, signal: unix.SIGINT, want: "SIGTERM SIGCONT"},
			{at: 10 * s, validUntil: 11 * s, want: ""},
			{at: 11 * s, validUntil: 11 * s, want: "KILL!"},
		}, true},
		{"after the loss of a killed command's lock nothing is ordered", []moment{
			{at: 1 * s, validUntil: 10 * s, want: "feed 10s"},
			{at: 2 * s, signal: unix.SIGINT, want: "SIGINT SIGCONT"},
			{at: 3 * s, signal: unix.SIGINT, want: "SIGTERM SIGCONT"},
			{at: 5 * s, validUntil: 10 * s, want: "KILL!"},
			{at: 8 * s, validUntil: 10 * s, want: ""},
		}, true},
		{"nothing is ordered after KILL", []moment{
			{at: 1 * s, over: ended, want: "KILL!"},
			{at: 2 * s, validUntil: 30 * s, want: ""},
			{at: 3 * s, signal: unix.SIGTERM, want: ""},
			{at: 4 * s, over: revoked, want: ""},
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := overseer{killAfter: 2 * s, validUntil: 5 * s}
			for _, m := range c.moments {
				var got orders
				if m.signal != 0 {
					got = o.signal(m.at, m.signal)
				} else {
					got = o.look(m.at, m.validUntil, m.over)
				}
				if got.String() != m.want {
					t.Fatalf("at %v: orders %q, want %q", m.at, got, m.want)
				}
			}
			if (o.loss != nil) != c.lost {
				t.Errorf("loss %v, want lost = %v", o.loss, c.lost)
			}
		})
	}
}

func TestTheOverseerWakesInTime(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	const draining = phase(100) // asked to end while the lock is held
	for _, c := range []struct {
		phase phase
		now   time.Duration
		want  time.Duration
	}{
		{running, 1 * s, overseerInterval},
		{running, 7950 * ms, 50 * ms}, // TERM is due at 8 s
		{ending, 9970 * ms, 30 * ms},  // KILL is due at 10 s
		{ending, 11 * s, 0},
		{killed, 11 * s, overseerInterval},
		{draining, 7950 * ms, 50 * ms}, // the lease is checked as before
	} {
		o := overseer{killAfter: 2 * s, validUntil: 10 * s, killAt: 10 * s, phase: c.phase, loss: ErrNotRenewed}
		if c.phase == draining {
			o.phase, o.killAt, o.loss = ending, 60*s, nil
		}
		if got := o.wake(c.now); got != c.want {
			t.Errorf("phase %d at %v: wake after %v, want %v", c.phase, c.now, got, c.want)
		}
	}
}

// A loss is reported with its reason, even if TERM came first.
func TestTheLossNamesTheReason(t *testing.T) {
	o := overseer{killAfter: time.Second, validUntil: 5 * time.Second}
	o.look(1, 10*time.Second, nil)
	o.look(9*time.Second, 10*time.Second, nil)
	if !errors.Is(o.loss, ErrNotRenewed) {
		t.Errorf("loss %v", o.loss)
	}
	o.look(10*time.Second, 0, &lockstep.LossError{Reason: lockstep.Revoked, By: "alice"})
	if err := fmt.Sprint(o.loss); !strings.Contains(err, "revoked by alice") {
		t.Errorf("loss %q", err)
	}
}

func TestAResignationOutweighsALoss(t *testing.T) {
	const s = time.Second
	o := overseer{killAfter: 2 * s, validUntil: 5 * s, resigns: true}
	o.look(1*s, 10*s, nil)
	if got := o.signal(2*s, unix.SIGUSR1).String(); got != "SIGUSR1" {
		t.Errorf("orders %q, want the signal passed on", got)
	}
	if got := o.signal(2*s, unix.SIGTERM).String(); got != "SIGTERM SIGCONT" {
		t.Errorf("orders %q, want TERM", got)
	}
	if got := o.signal(3*s, unix.SIGTERM).String(); got != "" {
		t.Errorf("orders %q after another TERM, want none", got)
	}
	if got := o.look(4*s, 14*s, nil).String(); got != "KILL! feed 14s" {
		t.Errorf("orders %q after kill-after, want KILL", got)
	}
	o = overseer{killAfter: 2 * s, validUntil: 5 * s, resigns: true}
	o.look(1*s, 10*s, nil)
	o.look(2*s, 0, &lockstep.LossError{Reason: lockstep.SessionExpired})
	o.signal(3*s, unix.SIGTERM)
	if !o.resigned || o.loss == nil {
		t.Errorf("resigned = %v, loss = %v: want both", o.resigned, o.loss)
	}
}

func TestALockIsNotKeptForACommandThatNeverStarted(t *testing.T) {
	const s = time.Second
	h := holding{command: Command{AtLeast: 30 * s}}
	if got := h.keepUntil(); got != 0 {
		t.Errorf("kept until %v although nothing was started", got)
	}
	h.started = 100 * s
	if got := h.keepUntil(); got != 130*s {
		t.Errorf("kept until %v, want 130 s", got)
	}
	h.overseer.loss = lockstep.ErrLost
	if got := h.keepUntil(); got != 0 {
		t.Errorf("kept until %v although the lock is lost", got)
	}
}
