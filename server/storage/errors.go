package storage

import (
	"errors"
	"strings"
)

// Kinds of RefusedError, for errors.Is.
var (
	ErrLocked  = errors.New("data directory in use")
	ErrForeign = errors.New("not this node's data directory")
	ErrNewer   = errors.New("data directory from a newer version")
	ErrDamaged = errors.New("data directory damaged")
	ErrAccess  = errors.New("data directory not usable")
)

// A RefusedError says why a data directory isn't used, and what to do. It matches its Kind and its
// Cause.
type RefusedError struct {
	Dir    string
	Kind   error  // ErrLocked, ErrForeign, ErrNewer, ErrDamaged or ErrAccess
	Reason string // what is wrong
	Remedy string // what an operator can do
	Cause  error  // nil if none
}

func (e *RefusedError) Error() string {
	var b strings.Builder
	b.WriteString("data directory " + e.Dir + ": " + e.Reason)
	if e.Cause != nil {
		b.WriteString(": " + e.Cause.Error())
	}
	if e.Remedy != "" {
		b.WriteString("; " + e.Remedy)
	}
	return b.String()
}

// Unwrap returns the kind and the cause.
func (e *RefusedError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// remedyDamaged is the remedy for every kind of damage. It must not suggest starting the node again
// with an empty directory under its old name: such a node has forgotten its votes and
// acknowledgements.
const remedyDamaged = "keep the directory for analysis; the other nodes keep serving while a majority is up: " +
	"bring this node back as a new member under a new name with an empty directory, " +
	"or, if a majority is damaged, restore the cluster from a snapshot"
