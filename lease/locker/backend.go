package locker

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// A Claim is one attempt to get a lock. A call of Acquire on a backend of records makes many, each
// with an ID of its own, so that undoing one cannot end another.
type Claim struct {
	lockstep.AcquireConfig
	// ID is 32 hexadecimal digits: 128 random bits. Whoever knows it can end the claim.
	ID string
	// TTL is how long a record of the claim lasts without a renewal. It is that of the Locker which
	// took it: a lock that was attached may come from one with another TTL. Zero on a backend of
	// sessions.
	TTL time.Duration
}

// A Grant is what a claim got.
type Grant struct {
	// Token is the fencing token, or zero when the backend has none.
	Token lockstep.Token
	// Owner is the public identity of the holder, by which [lockstep.Inspector] names it too.
	Owner string
	// Lease is that of the session which holds the lock. Nil on a backend of records: the Locker
	// then keeps a lease that begins with the sending of this Take.
	Lease *Lease
	// Gone delivers one error, a [*lockstep.LossError], when the backend sees that the lock was
	// taken away while its lease lives. Nil: renewals tell. It has room for the error, so that
	// nobody has to be there to receive it.
	Gone <-chan error
}

// A Backend is the part of a Locker that differs from store to store. Its methods are called from
// many goroutines.
type Backend interface {
	// Take tries to get the lock for the claim. Its error is
	//
	//   - [lockstep.ErrBusy], best a [*lockstep.BusyError]: others have the lock, and the claim is
	//     nowhere in the store;
	//   - [lockstep.ErrUnavailable]: the store was not reached, and the claim is nowhere in it;
	//   - [ErrQueued], alone or wrapped with one of the others: the claim is in the store's queue,
	//     and the Locker has to Drop it. A backend of sessions returns it when ctx ends while it
	//     waits;
	//   - [lockstep.ErrUnsupported], [lockstep.ErrInvalid], [lockstep.ErrQuota] or
	//     [lockstep.ErrMode]: trying again is useless;
	//   - any other error: the outcome is unknown, and the Locker has to Drop the claim.
	//
	// On a backend of records ctx ends after TTL/3 at the latest. On one of sessions it ends when
	// the caller's wait does; a claim with Try set must not wait there.
	Take(ctx context.Context, c *Claim) (Grant, error)

	// Drop ends the claim, whether it is held, queued or unknown to the store. Nil: it was in the
	// store and is not any more. An error with errors.Is [lockstep.ErrLost]: it was not in the
	// store, and will not be. After any other error Drop is called again. It must touch nothing
	// that belongs to another claim.
	Drop(ctx context.Context, c *Claim) error

	// Close ends what the backend has of its own, such as a session. It is called once, when no
	// other call is under way or will come.
	Close(ctx context.Context) error
}

// A Renewer is a backend of records.
type Renewer interface {
	// Renew makes the record of a claim last the full TTL from now. Nil: confirmed by the store. An
	// error with errors.Is [lockstep.ErrLost], best a [*lockstep.LossError] with RecordMissing: the
	// store has no record of this claim. After any other error it is called again until the lease
	// is over.
	Renew(ctx context.Context, c *Claim) error
}

// A Waker is a backend of records that hears of releases.
type Waker interface {
	// Wait returns when the lock of the claim may be free, after d, or when ctx is done, whichever
	// comes first. Where several claims wait for one lock, it may keep some of them longer than d,
	// as long as one looks.
	Wait(ctx context.Context, c *Claim, d time.Duration)
}

// ErrQueued is what Take returns for a claim that it left in the store.
var ErrQueued = errors.New("lockstep: the claim is still in the queue")
