//go:build !unix

package supervise

import (
	"context"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// Hidden does nothing: this system has no process groups.
func Hidden([]string) (code int, mine bool) { return 0, false }

// Adopt does nothing: this system cannot run a command under a lock.
func Adopt() error { return nil }

// Descends is false: this system does not list descendants.
func Descends(int) bool { return false }

// A Holder does not exist here.
type Holder struct{}

// Acquire fails with [ErrSystem].
func Acquire(context.Context, Claim) (*Holder, error) { return nil, ErrSystem }

// Lock returns nil.
func (h *Holder) Lock() lockstep.Lock { return nil }

// Locker returns nil.
func (h *Holder) Locker() lockstep.Locker { return nil }

// Run fails with [ErrSystem].
func (h *Holder) Run(Command) (code int, err error) { return 0, ErrSystem }

// Keep fails with [ErrSystem].
func (h *Holder) Keep(time.Duration) error { return ErrSystem }

// Release fails with [ErrSystem].
func (h *Holder) Release(error) error { return ErrSystem }

// Leave does nothing.
func (h *Holder) Leave() {}

// Elect fails with [ErrSystem].
func Elect(context.Context, Candidate, Command) (code int, err error) { return 0, ErrSystem }
