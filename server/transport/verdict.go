package transport

import (
	"errors"
	"strings"
)

// A Verdict is why a node does not let another one in. It is sent as a number, so the numbers must
// not change.
type Verdict byte

// The verdicts. Unwanted is used by older builds, which distinguished the others by their words,
// and for a node that was not added.
const (
	Unwanted   Verdict = 1
	Removed    Verdict = 3 // it is no longer a member
	Replaced   Verdict = 4 // it is known with another data directory
	OtherBirth Verdict = 5 // its directory belongs to another cluster
	OlderCopy  Verdict = 6 // its directory is an older copy, or another process uses it elsewhere
	Diverged   Verdict = 7 // its state differs at an entry that both have applied
	TooOld     Verdict = 8 // its build cannot apply what the cluster's log may hold
)

// A notAdmitted matches ErrNotAdmitted and, at the node that was refused, ErrRefused.
type notAdmitted struct {
	verdict Verdict
	reason  string
	remote  bool
}

// NotAdmitted makes an error for a Handler's Admit that tells the peer, through its Rejected, why
// it is not let in.
func NotAdmitted(v Verdict, reason string) error { return &notAdmitted{verdict: v, reason: reason} }

func (e *notAdmitted) Error() string { return e.reason }

// Is makes errors.Is see what it is.
func (e *notAdmitted) Is(target error) bool {
	return target == ErrNotAdmitted || e.remote && target == ErrRefused
}

// VerdictOf returns the verdict in an error from a peer's refusal, or from our own; zero: there is
// none.
func VerdictOf(err error) Verdict {
	e, ok := errors.AsType[*notAdmitted](err)
	if !ok {
		return 0
	}
	return e.verdict
}

// received returns the verdict of a peer's refusal, zero if it has none. A peer of an older build
// expresses it in words.
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
