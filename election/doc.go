// Package election elects one leader among many candidates, using any [lockstep.Locker].
//
// A [Candidate] waits for a lock, leads while it holds the lock, and campaigns again whenever its
// term is over. A term is one call of the body passed to [Candidate.Run]: the term starts with the
// call and ends when it returns.
//
// # What others rely on
//
//  1. Terms of one candidate are paired and never overlap: the body is called once for
//     each grant of the lock, and not again before the last call has returned.
//  2. The lock is released after the body has returned, never before.
//  3. The context of a term is done no later than [Config.RenewDeadline] after the last confirmed
//     renewal. From then on the body has [Config.Drain] before the lease ends by the holder's
//     clock, and another candidate can lead only after that. So a body that returns within Drain
//     never overlaps with its successor.
//  4. A body is never called with a context that is done.
//  5. A candidate starts at most one term per [Config.RetryPeriod].
//
// Guarantee 3 does not cover events that end a lock without its lease: a store that was tampered
// with, or an operator's revocation that skips the wait. The next leader may then already be
// working.
//
// # A body that does not return
//
// If a body has not returned after its context is done, nothing can stop it: Go has no way to end a
// goroutine from outside. Run keeps waiting for it, starts no new term and does not release the
// lock. If the lease can still be renewed, as after [Candidate.Resign], it is renewed, and there is
// no leader; that is safe, and [Candidate.Healthy] fails after Drain, so a probe restarts the
// process. If the lease cannot be renewed it ends, and another candidate leads while the hung body
// is still running. The same happens if the whole process is paused. No election can prevent that.
// This is what the token is for: pass it to the resource with each write, and let the resource
// refuse a token older than one it has seen.
//
// # Compared with client-go
//
// The names, proportions and rules of the durations are those of Kubernetes leader election
// (k8s.io/client-go/tools/leaderelection), where the usual lease of 15 s goes with a RenewDeadline
// of 10 s and a RetryPeriod of 2 s. Here the lease is the TTL of the Locker, and the defaults keep
// the proportions: 2/3 and 2/15 of it. The rule is also the same: lease > RenewDeadline >
// [JitterFactor] x RetryPeriod. So are the default identity (host name and a random part),
// OnNewLeader, and the rule that a candidate that does not lead is healthy.
//
// What differs:
//
//   - The lock queues. A candidate does not poll every RetryPeriod to see whether the lease is
//     free; if the backend has a queue, the release wakes the next leader. RetryPeriod is the pause
//     after an error.
//   - The lock renews itself, every TTL/3. RenewDeadline only says how long renewal may fail.
//   - Run does not return when leadership is lost: it campaigns again. Programs that use client-go
//     exit at this point.
//   - The body runs on Run's goroutine, and Run waits for it to return. client-go starts it on a
//     separate goroutine, calls OnStoppedLeading whether or not the body was ever started, and may
//     release the lease while the body is still running.
//   - The lock is always released at the end: there is no ReleaseOnCancel.
//   - There is a fencing token.
package election
