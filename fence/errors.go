package fence

import (
	"errors"
	"fmt"

	"github.com/lockstep-dev/lockstep"
)

// The reasons for a refusal. The error is a [*RefusedError], and nothing was changed.
var (
	// ErrStale: a later holder has been here. Stop the work: a retry with this token is
	// refused too.
	ErrStale = errors.New("fence: token is older than one seen here")

	// ErrAlready: this grant has already written here, and the work must be done only once. After a
	// lost reply it means that the first attempt took effect.
	ErrAlready = errors.New("fence: grant has written here already")

	// ErrForeign: the resource belongs to another lock or backend.
	ErrForeign = errors.New("fence: resource belongs to another lock")

	// ErrNoToken: the writer presented no fencing token.
	ErrNoToken = errors.New("fence: no fencing token")
)

var (
	// ErrBusy means that the guard could not get its turn in time: another writer is in the middle
	// of a step on the same resource. Nothing was written; try again.
	ErrBusy = errors.New("fence: resource is in use")

	// ErrMoved means that a mark is not what a reset expected. Read it again.
	ErrMoved = errors.New("fence: mark has changed")
)

// A RefusedError says what a guard refused, and what it has seen. errors.Is matches its Reason.
type RefusedError struct {
	// Reason is [ErrStale], [ErrAlready], [ErrForeign] or [ErrNoToken].
	Reason error
	// Grant is what the writer presented.
	Grant Grant
	// Mark is what the resource has seen; it is zero for ErrNoToken.
	Mark Mark
}

func (e *RefusedError) Error() string {
	g, m := e.Grant, e.Mark
	switch e.Reason {
	case ErrStale:
		return fmt.Sprintf("%v: token %d of lock %s, seen %d: a later holder is at work, stop and do not retry", e.Reason, g.Token, g.Lock, m.Token)
	case ErrAlready:
		return fmt.Sprintf("%v: token %d of lock %s: the write has taken effect, do not repeat it", e.Reason, g.Token, g.Lock)
	case ErrForeign:
		return fmt.Sprintf("%v: %s of %s, not %s of %s (tokens %d and %d do not compare): use one lock for a resource, or reset the mark if the change is meant",
			e.Reason, m.Lock, m.Backend, g.Lock, g.Backend, m.Token, g.Token)
	case ErrNoToken:
		return fmt.Sprintf("%v: acquire the lock, and send its token with each step (shared and exclusive locks have one, permits do not)", e.Reason)
	default:
		return fmt.Sprintf("fence: refused: %v", e.Reason)
	}
}

// Is makes errors.Is(err, e.Reason) hold.
func (e *RefusedError) Is(target error) bool { return target == e.Reason }

// Refused reports whether err is the verdict of a guard rather than a failure to reach one: a
// [*RefusedError], or a [*lockstep.InvalidError] about what the writer sent.
func Refused(err error) bool {
	_, ok := errors.AsType[*RefusedError](err)
	return ok || errors.Is(err, lockstep.ErrInvalid)
}
