package locker

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// A Claim is one attempt to get a lock. On a backend of records, one call of Acquire makes many
// claims, each with its own ID, so that undoing one cannot end another.
type Claim struct {
	lockstep.AcquireConfig
	// ID is 32 hexadecimal digits: 128 random bits. Anyone who knows it can end the claim.
	ID string
	// TTL is how long a record of the claim lasts without a renewal. It is the TTL of the Locker
	// that took it: an attached lock may come from a Locker with a different TTL. Zero on a backend
	// of sessions.
	TTL time.Duration
}

// A Grant is the result of a successful claim.
type Grant struct {
	// Token is the fencing token, or zero when the backend has none.
	Token lockstep.Token
	// Owner is the public identity of the holder, which [lockstep.Inspector] also reports.
	Owner string
	// Lease is the lease of the session that holds the lock. Nil on a backend of records: the
	// Locker then keeps a lease that counts from when this Take was sent.
	Lease *Lease
	// Gone delivers one error, a [*lockstep.LossError], when the backend sees that the lock was
	// taken away while its lease is alive. Nil: renewals discover it. It is buffered, so the sender
	// does not need a receiver.
	Gone <-chan error
}

// A Backend is the part of a Locker that differs between stores. Its methods are called from many
// goroutines.
type Backend interface {
	// Take tries to get the lock for the claim. Its error is one of
	//
	//   - [lockstep.ErrBusy], preferably a [*lockstep.BusyError]: others have the lock, and the
	//     claim is not in the store;
	//   - [lockstep.ErrUnavailable]: the store was not reached, and the claim is not in it;
	//   - [ErrQueued], alone or wrapped with one of the others: the claim is in the store's queue,
	//     and the Locker must Drop it. A backend of sessions returns it when ctx ends while it
	//     waits;
	//   - [lockstep.ErrUnsupported], [lockstep.ErrInvalid], [lockstep.ErrQuota] or
	//     [lockstep.ErrMode]: trying again is useless;
	//   - any other error: the outcome is unknown, and the Locker must Drop the claim.
	//
	// On a backend of records ctx ends after TTL/3 at the latest. On a backend of sessions it ends
	// when the caller's wait does; a claim with Try set must not wait there.
	Take(ctx context.Context, c *Claim) (Grant, error)

	// Drop ends the claim, whether it is held, queued or unknown to the store. Nil: it was in the
	// store and no longer is. An error that is [lockstep.ErrLost]: it was not in the store and will
	// not be. After any other error Drop is called again. It must not touch anything that belongs
	// to another claim.
	Drop(ctx context.Context, c *Claim) error

	// Close ends the backend's own resources, such as a session. It is called once, when no other
	// call is in progress or will follow.
	Close(ctx context.Context) error
}

// A Renewer is a backend of records.
type Renewer interface {
	// Renew makes the record of a claim last the full TTL from now. Nil: confirmed by the store. An
	// error that is [lockstep.ErrLost], preferably a [*lockstep.LossError] with RecordMissing: the
	// store has no record of this claim. After any other error it is called again until the lease
	// is over.
	Renew(ctx context.Context, c *Claim) error
}

// A Waker is a backend of records that is notified of releases.
type Waker interface {
	// Wait returns when the lock of the claim may be free, after d, or when ctx is done, whichever
	// comes first. If several claims wait for one lock, it may hold some of them longer than d, as
	// long as one of them returns in time.
	Wait(ctx context.Context, c *Claim, d time.Duration)
}

// ErrQueued is returned by Take for a claim that it left in the store.
var ErrQueued = errors.New("lockstep: the claim is still in the queue")
