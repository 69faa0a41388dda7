// Package lockstep is the contract of a distributed lock: one Go interface implemented by the
// Lockstep service, Redis, Redlock, ZooKeeper, etcd and Postgres.
//
// A [Locker] hands out locks. A [Lock] is one grant with a lease that is renewed
// in the background, and a fencing [Token] that rises from holder to holder.
//
// # What a lock cannot promise
//
// A lease can end while its holder is paused, by the garbage collector, the scheduler or a
// hypervisor, between checking the lock and acting on it. The holder then acts while another
// process holds the lock. No lock service can prevent this. So a lock is advice: it makes conflicts
// rare. Safety comes from the protected resource, which must refuse a write whose token is older
// than one it has seen.
//
// The module depends only on the standard library; each backend is its own module.
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

// MaxToken is the largest token. JSON readers that store numbers as float64 represent every token
// up to it exactly.
const MaxToken Token = 1<<53 - 1

// A Locker hands out locks of one backend. It is safe for concurrent use. Each call of Acquire is a
// separate claim, so goroutines that share a Locker exclude each other like any other holders;
// locks are not reentrant.
type Locker interface {
	// Acquire waits in the queue of the named lock until it is granted, ctx is done, or [WithWait]
	// runs out, which returns [ErrBusy]. ctx bounds only the wait: a granted lock outlives it, and
	// [Lock.Context] is not derived from it. For work that must end with either, use the context of
	// [WithLock], or use [Do].
	//
	// If Acquire returns an error, nothing is held, or whatever is held is freed within one TTL: a
	// request with an unknown outcome is undone in the background. An option that the backend
	// cannot honour returns [ErrUnsupported] before anything is sent; a name or option that breaks
	// a rule returns [ErrInvalid].
	Acquire(ctx context.Context, name string, opts ...AcquireOption) (Lock, error)

	// Capabilities reports what the backend promises. It does no I/O. All fields are constant
	// except TTL and Grace: a backend that negotiates them reports the requested values before its
	// first session and the granted ones from then on.
	Capabilities() Capabilities

	// Close releases all locks of this Locker and ends its session. It joins the errors of the
	// releases. Later calls of Acquire return [ErrClosed]. Close is idempotent.
	Close(ctx context.Context) error
}

// A Lock is one grant. Once over, it never becomes valid again. It is safe for concurrent use.
type Lock interface {
	// Name is the name that Acquire was called with.
	Name() string

	// Names returns all names of the claim: Name and those of [WithAlso]. They share one token.
	Names() []string

	// Token is the fencing token of the grant. It is zero when the backend, or the mode of the
	// claim, has no token.
	Token() Token

	// Context is done when the lock is over, no later than the local end of the lease.
	// [context.Cause] then reports why: [ErrReleased], [ErrDetached] or a [*LossError]. It is not
	// derived from the context passed to Acquire: see [WithLock].
	Context() context.Context

	// Check reads the suspend-proof clock now. It returns nil while the lock is
	// held, and otherwise the cause of Context. It does no I/O.
	Check() error

	// Remaining is the time until the lease ends unless it is renewed, on the
	// suspend-proof clock; zero when it is over.
	Remaining() time.Duration

	// Release gives the lock back. Nil means that the lock is confirmed to be free, also on
	// repeated calls. [ErrLost] means that it was lost before. [ErrUncertain] means that renewal
	// has stopped and the release continues in the background: call again to learn the outcome.
	// Release works even if ctx is already done; it then allows itself 5 seconds.
	Release(ctx context.Context) error
}

// Capabilities lists what a backend promises; a field with its zero value is not promised. The
// conformance suite in package locktest checks each claim, and that the backend refuses what it
// does not claim.
type Capabilities struct {
	// Backend is the name of the backend, such as "native" or "redlock".
	Backend string

	// TTL and Grace bound how long a dead holder blocks others: its lock is free no later than TTL
	// + Grace after its last renewal. They belong to the Locker: a program that wants a TTL of 5 s
	// for one lock and 5 min for another needs two Lockers.
	TTL, Grace time.Duration

	// Fenced: tokens of a name rise strictly over exclusive grants, including across expiry,
	// deletion and restart of the backend.
	Fenced bool

	// FIFO: waiters are granted in the order in which their requests arrived.
	FIFO bool

	// Shared, Permits, Multi and LockDelay: [WithShared], [WithPermits],
	// [WithAlso] and [WithLockDelay] are honoured.
	Shared, Permits, Multi, LockDelay bool

	// SurvivesFailover: the failure of a minority of the backend's machines, including its leader,
	// loses no lock and grants none twice.
	SurvivesFailover bool

	// ClockBound: exclusion depends on the clocks of the backend's machines.
	ClockBound bool

	// Notes are caveats that a person should read before relying on the backend.
	Notes []string
}

// An Inspector can report who holds a lock and who waits for it. A [Locker] that supports this
// implements it; use a type assertion to find out.
type Inspector interface {
	// Inspect reads the current state of the named lock. If no one holds or waits for the lock, the
	// State has no claims; that is not an error.
	Inspect(ctx context.Context, name string) (State, error)
}

// A Watcher can follow the holder of a lock as it changes.
type Watcher interface {
	// Watch yields the current state of the named lock and then each new one; a state that is
	// superseded before the caller asks for it may be skipped. "Nobody holds it" is a state like
	// any other. The sequence ends after a non-nil error, or without one when ctx is done.
	Watch(ctx context.Context, name string) iter.Seq2[State, error]
}

// A Detacher can hand a lock over to another process, as separate invocations of a shell script
// require.
type Detacher interface {
	// Detach ends this process's use of the lock and leaves its lease running. The cause of the
	// lock's context becomes [ErrDetached]. The Handle is a secret: anyone who has it can renew and
	// release the lock.
	Detach(ctx context.Context, l Lock) (Handle, error)

	// Attach takes over a detached lock, renewing it at once. It returns [ErrLost] if the lease has
	// ended.
	Attach(ctx context.Context, h Handle) (Lock, error)
}

// A Handle is a detached lock: opaque, printable and secret.
type Handle string

// A State is a snapshot of a lock: who holds it and who waits for it.
type State struct {
	Name    string
	Holders []Claim
	Waiters []Claim // in queue order; empty on a backend without a queue, where waiters poll
	// NextToken is a lower bound of the next exclusive holder's token, or zero if the backend
	// cannot tell.
	NextToken Token
}

// A Claim is one holder or waiter of a lock, as others may see it.
type Claim struct {
	// Owner is a public identity, such as the id of a session. It gives no control over the claim.
	Owner string
	// Token is zero for a waiter.
	Token Token
	// Mode is how the claim holds the lock, or will hold it.
	Mode Mode
	// Since is when the claim was granted, or queued if it is a waiter, on the backend's wall
	// clock: for display, not for decisions.
	Since    time.Time
	Metadata map[string]string
}

// TryAcquire takes the named lock now or returns [ErrBusy]. It is Acquire with
// [WithWait] zero.
func TryAcquire(ctx context.Context, l Locker, name string, opts ...AcquireOption) (Lock, error) {
	return l.Acquire(ctx, name, append(opts[:len(opts):len(opts)], WithWait(0))...)
}
