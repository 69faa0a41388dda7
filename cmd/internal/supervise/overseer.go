//go:build unix

package supervise

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstep-dev/lockstep"
)

// overseerInterval is the longest time between checks of the lock: timers stop while the machine is
// suspended. Reading a lease takes well under a microsecond.
const overseerInterval = 100 * time.Millisecond

// An overseer decides what happens to a command under a lock. It takes the time and what is known
// about the lock, and returns orders; it does nothing itself.
//
// # Invariants
//
//  1. After KILL, the only order that may follow is a later deadline for the watcher, while the
//     lock is held.
//  2. After TERM, the command ends whatever happens to the lock; once the lock is lost, the
//     deadline is final.
//  3. KILL comes at validUntil at the latest, and at once when the lock is lost, unless it was
//     revoked: the service then waits for the holder.
type overseer struct {
	killAfter  time.Duration // between TERM and KILL when the lock is lost
	drain      time.Duration // between TERM and KILL when an end was requested; 0: killAfter
	validUntil time.Duration // the largest one seen, on the clock of [Now]
	phase      phase
	killAt     time.Duration // in phase ending
	interrupts int
	resigns    bool  // INT and TERM end the command within killAfter
	resigned   bool  // one of them was received
	loss       error // why the lock is lost; nil while it is held
}

type phase int

const (
	running phase = iota
	ending        // TERM was sent
	killed        // KILL was sent
)

// Orders are carried out in the order of the fields.
type orders struct {
	signals []unix.Signal
	all     bool // send the signals to all descendants of the command, not only to its process group
	kill    bool
	feed    time.Duration // the new deadline of the watcher; zero: unchanged
	say     Event         // what the user should know, or nil
}

func (o *orders) add(more orders) {
	o.signals = append(o.signals, more.signals...)
	o.all = o.all || more.all
	o.kill = o.kill || more.kill
	o.feed = max(o.feed, more.feed)
	if more.say != nil {
		o.say = more.say
	}
}

// look takes the state of the lock: until when it is valid and, in over, why it was lost, or nil
// while it is held.
func (o *overseer) look(now, validUntil time.Duration, over error) orders {
	switch {
	case over != nil:
		return o.lost(now, over)
	case o.loss != nil:
		return o.killIfDue(now)
	}
	var out orders
	if validUntil > o.validUntil {
		o.validUntil, out.feed = validUntil, validUntil
	}
	if now >= o.validUntil {
		o.loss = ErrNotRenewed
		return o.kill()
	}
	if o.validUntil-now <= o.killAfter {
		o.loss = ErrNotRenewed
		out.add(o.terminate(o.validUntil))
	}
	out.add(o.killIfDue(now))
	return out
}

func (o *overseer) lost(now time.Duration, over error) orders {
	if o.loss == nil || errors.Is(o.loss, ErrNotRenewed) {
		o.loss = over
	}
	var loss *lockstep.LossError
	if !errors.As(over, &loss) || loss.Reason != lockstep.Revoked {
		return o.kill()
	}
	out := o.terminate(min(now+o.killAfter, o.validUntil))
	out.add(o.killIfDue(now))
	return out
}

// terminate asks the command to end by killAt. A stopped command must be continued to receive TERM.
// A command that was asked before is killed at the earlier of the two times.
func (o *overseer) terminate(killAt time.Duration) orders {
	if o.phase != running {
		o.killAt = min(o.killAt, killAt)
		return orders{}
	}
	o.phase, o.killAt = ending, killAt
	return orders{signals: []unix.Signal{unix.SIGTERM, unix.SIGCONT}, all: true}
}

func (o *overseer) killIfDue(now time.Duration) orders {
	if o.phase != ending || now < o.killAt {
		return orders{}
	}
	return o.kill()
}

func (o *overseer) kill() orders {
	if o.phase == killed {
		return orders{}
	}
	o.phase = killed
	return orders{kill: true}
}

// overdue handles the report that the watcher killed the command.
func (o *overseer) overdue() orders {
	if o.loss == nil {
		o.loss = ErrNotRenewed
	}
	return o.kill()
}

// unwatched handles the report that nothing would kill the command if this program were killed.
func (o *overseer) unwatched() orders {
	out := o.kill()
	if o.loss == nil {
		out.say = WatcherKilled{}
	}
	return out
}

// signal handles a signal sent to this program.
func (o *overseer) signal(now time.Duration, sig os.Signal) orders {
	number, ok := sig.(unix.Signal)
	if o.resigns && (number == unix.SIGINT || number == unix.SIGTERM) {
		again := o.resigned && number == unix.SIGINT
		o.resigned = true // even if the command is already ending for another reason
		if again {
			return o.terminate(now + o.killAfter)
		}
		return o.hurry(now, nil)
	}
	if !ok || o.phase == killed {
		return orders{}
	}
	if number == unix.SIGINT {
		if o.interrupts++; o.interrupts == 2 {
			return o.hurry(now, Interrupted{})
		}
	}
	out := orders{signals: []unix.Signal{number}}
	if asksToEnd(number) { // a stopped command must be continued to receive it
		out.signals = append(out.signals, unix.SIGCONT)
	}
	return out
}

// hurry ends the command while the lock is held. The lock stays held until the command has ended.
func (o *overseer) hurry(now time.Duration, why Event) orders {
	if o.phase != running {
		return orders{}
	}
	out := o.terminate(now + max(o.drain, o.killAfter))
	out.say = why
	return out
}

// wake returns how soon look must be called again if nothing else happens.
func (o *overseer) wake(now time.Duration) time.Duration {
	next := now + overseerInterval
	switch o.phase {
	case running:
		next = min(next, o.validUntil-o.killAfter)
	case ending:
		next = min(next, o.killAt)
		if o.loss == nil {
			next = min(next, o.validUntil-o.killAfter)
		}
	}
	return max(0, next-now)
}
