package transport

import (
	"errors"
	"strings"
)

// A Verdict is why a node does not let another one in. It goes over the wire as a number, so the numbers stay.
type Verdict byte

// The verdicts. Unwanted is that of builds before the others, which told them apart by their words, and of a node that
// was not added.
const (
	Unwanted   Verdict = 1
	Removed    Verdict = 3 // it is a member no more
	Replaced   Verdict = 4 // it is known with another data directory
	OtherBirth Verdict = 5 // its directory belongs to another cluster
	OlderCopy  Verdict = 6 // its directory is an older copy, or is used by another process elsewhere
	Diverged   Verdict = 7 // its state differs at an entry that both have applied
	TooOld     Verdict = 8 // its build cannot apply what the cluster's log may hold
)

// A notAdmitted matches ErrNotAdmitted and, at the node that was refused, ErrRefused.
type notAdmitted struct {
	verdict Verdict
	reason  string
	remote  bool
}

// NotAdmitted is the error of a Handler's Admit that tells the peer why it is not let in, by its Rejected.
func NotAdmitted(v Verdict, reason string) error { return &notAdmitted{verdict: v, reason: reason} }

func (e *notAdmitted) Error() string { return e.reason }

// Is makes errors.Is see what it is.
func (e *notAdmitted) Is(target error) bool {
	return target == ErrNotAdmitted || e.remote && target == ErrRefused
}

// VerdictOf is the verdict in an error that a peer's refusal, or an own one, came to; zero: there is none.
func VerdictOf(err error) Verdict {
	e, ok := errors.AsType[*notAdmitted](err)
	if !ok {
		return 0
	}
	return e.verdict
}

// received is the verdict of a peer's refusal, zero when it is none. A peer of a build before the verdicts says it in words.
func (e *refusedError) received() Verdict {
	switch v := Verdict(e.code); {
	case v == Unwanted && strings.Contains(e.reason, "was removed"):
		return Removed
	case v == Unwanted && strings.Contains(e.reason, "is known here with the data directory"):
		return Replaced
	case v == Unwanted, v >= Removed:
		return v
	}
	return 0
}
