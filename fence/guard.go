package fence

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/lockstep-dev/lockstep"
)

// MaxResourceBytes bounds the name of a resource.
const MaxResourceBytes = 1024

// A Guard keeps the marks of many resources. It is safe for concurrent use. Guards for stores also
// have their own methods that write data in the same step. This interface is what they have in
// common, for code that guards something else, such as the handlers behind fence/httpfence.
type Guard interface {
	// Admit decides about one step of a grant on a resource, as [Mark.Admit] defines, and stores
	// the new mark before it returns nil. The caller must hold off other steps on this resource
	// until its own is done, or write in a place that an older holder can no longer reach.
	//
	// For a verdict, [Refused] is true. On any other error the caller must stop: the guard may have
	// raised the mark, and has written nothing.
	Admit(ctx context.Context, resource string, g Grant, s Step) error
}

// A Resetter can read marks and give a resource to another lock: see [Mark.Reset]. It is for
// operator commands, never for writers.
type Resetter interface {
	// Mark is the current mark of the resource, or zero if it has none.
	Mark(ctx context.Context, resource string) (Mark, error)
	// Reset replaces the mark from with one for another lock.
	Reset(ctx context.Context, resource string, from, to Mark) error
}

// CheckResource returns a [*lockstep.InvalidError] with the rule that the name of a resource
// breaks, or nil. A name is 1 to [MaxResourceBytes] bytes of UTF-8.
func CheckResource(name string) error {
	switch {
	case name == "":
		return &lockstep.InvalidError{Field: "resource", Rule: "must not be empty"}
	case len(name) > MaxResourceBytes:
		return &lockstep.InvalidError{Field: "resource", Value: lockstep.Excerpt(name), Rule: fmt.Sprintf("is %d bytes long, the limit is %d", len(name), MaxResourceBytes)}
	case !utf8.ValidString(name):
		return &lockstep.InvalidError{Field: "resource", Value: lockstep.Excerpt(name), Rule: "must be valid UTF-8"}
	}
	return nil
}
