// Package lockstep is the contract of a distributed lock: one Go interface that
// the Lockstep service, Redis, Redlock, ZooKeeper, etcd and Postgres all serve.
//
// A [Locker] hands out locks. A [Lock] is one grant with a lease that is renewed
// in the background, and a fencing [Token] that rises from holder to holder.
//
// # What a lock cannot promise
//
// A lease can end while its holder is paused, by the garbage collector, the
// scheduler or a hypervisor, between checking the lock and acting on it. The
// holder then acts although another process holds the lock. No lock service can
// prevent this. So a lock is advice: it makes conflicts rare. Safety comes from
// the protected resource, which must refuse a write whose token is older than
// one it has seen.
//
// The module needs nothing but the standard library; each backend is a module
// of its own.
package lockstep

import (
	"context"
	"iter"
	"time"
)

// A Token orders the holders of one lock on one backend: a later exclusive
// holder has a larger one. It is 1 to [MaxToken]. Zero means "none": it was never
// issued, and every guard refuses it. Tokens of different names, clusters or
// backends do not compare.
type Token uint64

// MaxToken is the largest token. JSON readers that keep numbers in a float64
// hold every token up to it exactly.
const MaxToken Token = 1<<53 - 1

// A Locker hands out locks of one backend. It is safe for concurrent use. Each
// call of Acquire is a claim of its own, so goroutines that share a Locker
// exclude each other like strangers; no lock is reentrant.
type Locker interface {
	// Acquire waits in the queue of the named lock until it is granted, ctx is
	// done, or [WithWait] runs out, which is [ErrBusy]. ctx bounds the waiting
	// alone: a granted lock outlives it, and [Lock.Context] is no child of it. Give
	// work that must end with either the context of [WithLock], or use [Do].
	//
	// When Acquire returns an error nothing is held, or will be within one TTL:
	// a request whose outcome is unknown is undone in the background. What the
	// backend cannot honour is [ErrUnsupported] before anything is sent; a name
	// or an option that breaks a rule is [ErrInvalid].
	Acquire(ctx context.Context, name string, opts ...AcquireOption) (Lock, error)

	// Capabilities says what the backend promises. It does no I/O. All of it is constant but TTL
	// and Grace, which a backend that negotiates them tells as asked for before its first session,
	// and as granted from then on.
	Capabilities() Capabilities

	// Close releases all locks of this Locker and ends its session. It joins the
	// errors of the releases. Later calls of Acquire return [ErrClosed]. Close is
	// idempotent.
	Close(ctx context.Context) error
}

// A Lock is one grant. Once over, it never comes back to life. It is safe for
// concurrent use.
type Lock interface {
	// Name is the name that Acquire was called with.
	Name() string

	// Names are all names of the claim: Name and those of [WithAlso]. One token
	// serves them all.
	Names() []string

	// Token is the fencing token of the grant. It is zero when the backend, or
	// the mode of the claim, has no token to offer.
	Token() Token

	// Context is done when the lock is over, at the local end of the lease at the
	// latest. [context.Cause] then tells why: [ErrReleased], [ErrDetached] or a
	// [*LossError]. It is no child of the context that was given to Acquire: see [WithLock].
	Context() context.Context

	// Check reads the suspend-proof clock now. It returns nil while the lock is
	// held, and otherwise the cause of Context. It does no I/O.
	Check() error

	// Remaining is the time until the lease ends unless it is renewed, on the
	// suspend-proof clock; zero when it is over.
	Remaining() time.Duration

	// Release gives the lock back. Nil means that it is confirmed to be free, also
	// when called again. [ErrLost] means that it was lost before.
	// [ErrUncertain] means that renewal has stopped and that undoing goes on in
	// the background: call again to learn the end. Release works when ctx is
	// already done; it then has 5 seconds of its own.
	Release(ctx context.Context) error
}

// Capabilities says what a backend promises, and with the zero value of a field
// what it does not. The conformance suite in package locktest checks each claim,
// and that what is not claimed is refused.
type Capabilities struct {
	// Backend is the name of the backend, such as "native" or "redlock".
	Backend string

	// TTL and Grace bound the time for which a dead holder blocks others: its lock is free by TTL +
	// Grace after its last renewal. They belong to the Locker: a program that wants a TTL of 5 s
	// for one lock and 5 min for another has two Lockers.
	TTL, Grace time.Duration

	// Fenced: tokens of a name rise strictly over exclusive grants, also across
	// expiry, deletion and restart of the backend.
	Fenced bool

	// FIFO: waiters are granted in the order in which their requests arrived.
	FIFO bool

	// Shared, Permits, Multi and LockDelay: [WithShared], [WithPermits],
	// [WithAlso] and [WithLockDelay] are honoured.
	Shared, Permits, Multi, LockDelay bool

	// SurvivesFailover: the failure of a minority of the backend's machines, of
	// its leader too, loses no lock and grants none twice.
	SurvivesFailover bool

	// ClockBound: exclusion depends on the clocks of the backend's machines.
	ClockBound bool

	// Notes are sentences that a person should read before relying on the
	// backend.
	Notes []string
}

// An Inspector can say who holds a lock and who waits for it. A [Locker] that
// can implements it; callers find out by type assertion.
type Inspector interface {
	// Inspect reads the present state of the named lock. A lock that nobody
	// holds or waits for has a State without claims; that is no error.
	Inspect(ctx context.Context, name string) (State, error)
}

// A Watcher can follow the holder of a lock as it changes.
type Watcher interface {
	// Watch yields the present state of the named lock and then each new one; a
	// state that another has followed before the caller asks may be left out.
	// "Nobody holds it" is a state like any other. The sequence ends after a
	// non-nil error, or without one when ctx is done.
	Watch(ctx context.Context, name string) iter.Seq2[State, error]
}

// A Detacher can hand a lock over to another process, which is what separate
// invocations of a shell script need.
type Detacher interface {
	// Detach ends this process's part in the lock and leaves its lease running. The
	// cause of the lock's context is [ErrDetached]. The Handle is a secret: whoever
	// has it can renew and release the lock.
	Detach(ctx context.Context, l Lock) (Handle, error)

	// Attach takes over a detached lock, renewing it at once. It returns
	// [ErrLost] when the lease has ended.
	Attach(ctx context.Context, h Handle) (Lock, error)
}

// A Handle is a detached lock: opaque, printable and secret.
type Handle string

// A State is a moment in the life of a lock: who holds it and who waits for it.
type State struct {
	Name    string
	Holders []Claim
	Waiters []Claim // first in the queue first; empty on a backend without a queue, where waiters ask again and again
	// NextToken is a lower bound of the next exclusive holder's token; zero if the
	// backend cannot tell.
	NextToken Token
}

// A Claim is one holder or waiter of a lock, as others may see it.
type Claim struct {
	// Owner is a public identity, such as the id of a session. It gives no right
	// over the claim.
	Owner string
	// Token is zero for a waiter.
	Token Token
	// Mode is how the claim holds the lock, or will.
	Mode Mode
	// Since is when the claim was granted, or queued for a waiter, on the
	// backend's wall clock: for people, not for decisions.
	Since    time.Time
	Metadata map[string]string
}

// TryAcquire takes the named lock now or returns [ErrBusy]. It is Acquire with
// [WithWait] zero.
func TryAcquire(ctx context.Context, l Locker, name string, opts ...AcquireOption) (Lock, error) {
	return l.Acquire(ctx, name, append(opts[:len(opts):len(opts)], WithWait(0))...)
}
