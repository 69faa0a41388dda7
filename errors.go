package lockstep

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrBusy means that others hold the lock or are ahead in the queue. The error is a
	// [*BusyError] when the backend can say who.
	ErrBusy = errors.New("lockstep: lock is busy")

	// ErrLost means that a lease ran out or was taken away. Another holder may be working already.
	// The error is a [*LossError].
	ErrLost = errors.New("lockstep: lock lost")

	// ErrReleased is the cause of a lock that its holder released.
	ErrReleased = errors.New("lockstep: lock released")

	// ErrDetached is the cause of a lock that [Detacher.Detach] handed over. Its lease keeps
	// running, so Release returns it too: this process can no longer free the lock.
	ErrDetached = errors.New("lockstep: lock detached")

	// ErrUncertain means that a request was sent and no answer came: it may have taken effect. The
	// Locker keeps undoing it in the background.
	ErrUncertain = errors.New("lockstep: outcome unknown")

	// ErrUnavailable means that the backend could not be reached, or has no
	// quorum, and that the request had no effect.
	ErrUnavailable = errors.New("lockstep: backend unavailable")

	// ErrQuota means that a limit of the backend was reached.
	ErrQuota = errors.New("lockstep: limit reached")

	// ErrUnsupported means that the backend cannot honour an option. Nothing was
	// sent.
	ErrUnsupported = errors.New("lockstep: not supported by this backend")

	// ErrInvalid means that a name or an option breaks a rule. Nothing was sent. The error is an
	// [*InvalidError] when it was detected locally.
	ErrInvalid = errors.New("lockstep: invalid request")

	// ErrMode means that the name is in use as a different kind of lock: a semaphore instead of a
	// lock, or one with a different number of permits.
	ErrMode = errors.New("lockstep: name in use with another mode")

	// ErrClosed means that the Locker was closed.
	ErrClosed = errors.New("lockstep: locker is closed")
)

// A BusyError says who is in the way. errors.Is(err, [ErrBusy]) holds.
type BusyError struct {
	// Holders are the current holders, as far as the backend knows.
	Holders []Claim
	// Position is the place in the queue that the claim had or would have had: 1 is next to be
	// granted, 0 is unknown.
	Position int
}

func (e *BusyError) Error() string {
	if len(e.Holders) == 0 {
		return ErrBusy.Error()
	}
	return fmt.Sprintf("%v: held by %s", ErrBusy, e.Holders[0].describe())
}

// Is makes errors.Is(err, ErrBusy) hold.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

func (c Claim) describe() string {
	var b strings.Builder
	b.WriteString(c.Owner)
	for _, key := range []string{"host", "pid", "purpose"} {
		if v, ok := c.Metadata[key]; ok {
			fmt.Fprintf(&b, " %s=%q", key, v)
		}
	}
	return b.String()
}

// A LossReason says how a lock was lost.
type LossReason int

const (
	// LeaseEnded: no renewal was confirmed in time. The holder found out from its own clock; the
	// backend may never have been reached.
	LeaseEnded LossReason = iota + 1
	// SessionExpired: the backend reported that it ended the session.
	SessionExpired
	// Revoked: an operator took the lock away.
	Revoked
	// RecordMissing: the backend no longer knows the lock: its record was deleted or evicted, or
	// belongs to another holder.
	RecordMissing
	// MaxHoldReached: the limit that the holder set with [WithMaxHold] was reached.
	MaxHoldReached
)

func (r LossReason) String() string {
	switch r {
	case LeaseEnded:
		return "lease ended"
	case SessionExpired:
		return "session expired"
	case Revoked:
		return "revoked"
	case RecordMissing:
		return "record missing"
	case MaxHoldReached:
		return "maximum hold time reached"
	default:
		return fmt.Sprintf("LossReason(%d)", int(r))
	}
}

// A LossError says why a lock was lost. errors.Is(err, [ErrLost]) holds.
type LossError struct {
	Reason LossReason
	By     string // who revoked it; empty otherwise
	Detail string // for people; may be empty
}

func (e *LossError) Error() string {
	s := ErrLost.Error() + ": " + e.Reason.String()
	if e.By != "" {
		s += " by " + e.By
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Is makes errors.Is(err, ErrLost) hold.
func (e *LossError) Is(target error) bool { return target == ErrLost }

// An InvalidError says which field of a request breaks which rule.
// errors.Is(err, [ErrInvalid]) holds.
type InvalidError struct {
	Field string // such as "name" or "ttl"
	Value string // at most 64 bytes of the given value, quoted; may be empty
	Rule  string // what a valid value must satisfy, with its limit
}

func (e *InvalidError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("lockstep: %s: %s", e.Field, e.Rule)
	}
	return fmt.Sprintf("lockstep: %s %s: %s", e.Field, e.Value, e.Rule)
}

// Is makes errors.Is(err, ErrInvalid) hold.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// An OpError says which operation on which lock failed. Its message reads
// outside in: "acquire orders/42: lockstep: backend unavailable: ...".
type OpError struct {
	Op   string // "acquire", "hold", "renew", "release", "inspect", "watch", "detach", "attach", "ping"
	Lock string
	Err  error
}

func (e *OpError) Error() string {
	if e.Lock == "" {
		return e.Op + ": " + e.Err.Error()
	}
	return e.Op + " " + quoteName(e.Lock) + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// SafeToRetry reports whether the failed call certainly had no effect, so that
// the same call can be made again. It is true for busy, unavailable, quota,
// invalid, unsupported and wrong-mode errors. It is false for [ErrUncertain], for
// the end of a context, and for errors that this package does not know.
func SafeToRetry(err error) bool {
	if errors.Is(err, ErrUncertain) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	for _, harmless := range []error{ErrBusy, ErrUnavailable, ErrQuota, ErrInvalid, ErrUnsupported, ErrMode} {
		if errors.Is(err, harmless) {
			return true
		}
	}
	return false
}
