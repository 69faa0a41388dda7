// Package election keeps one leader among many candidates, over any [lockstep.Locker].
//
// A [Candidate] waits for a lock, leads while it holds it, and stands for election
// again whenever its term is over. A term is one call of the body that
// [Candidate.Run] is given: the call is the start of the term, its return the end.
//
// # What others rely on
//
//  1. Terms of one candidate are paired and never overlap: the body is called once for
//     each grant of the lock, and not again before the last call has returned.
//  2. The lock is released after the body has returned, never before.
//  3. The context of a term is done at [Config.RenewDeadline] after the last confirmed
//     renewal, at the latest. From then on the body has [Config.Drain] before the
//     lease ends by the holder's clock, and another candidate can lead only after
//     that. So a body that returns within Drain never meets its successor.
//  4. A body is not called with a context that is done.
//  5. A candidate begins at most one term in each [Config.RetryPeriod].
//
// Excepted from 3 is what ends a lock without its lease: a store that was tampered
// with, an operator's revocation that skips the wait. The next leader may be at work by then.
//
// # A body that does not return
//
// When a body has not returned after its context is done, nothing can stop it: Go has no way to end
// a goroutine from outside. Run goes on waiting for it, begins no new term and does not release the
// lock. If the lease can still be renewed, as after [Candidate.Resign], it is, and nobody leads;
// that is safe, and [Candidate.Healthy] fails after Drain, so that a probe restarts the process. If
// the lease cannot be renewed it ends, and another leads beside the body that hangs. The same
// happens when the whole process is paused. No election can prevent that. The token is for it: give
// it to the resource with each write, and let the resource refuse one that is older than one it has
// seen.
//
// # Habits of client-go
//
// Names, proportions and rules of the durations are those of Kubernetes' leader
// election (k8s.io/client-go/tools/leaderelection), where the usual lease of 15 s goes
// with a RenewDeadline of 10 s and a RetryPeriod of 2 s. Here the lease is the TTL of
// the Locker, and the defaults keep the proportions: 2/3 and 2/15 of it. The rule is the same:
// lease > RenewDeadline > [JitterFactor] x RetryPeriod. So are the default identity (host name
// and a random part), OnNewLeader, and that a candidate who does not lead is healthy.
//
// What differs:
//
//   - The lock queues. A candidate does not ask every RetryPeriod whether the lease is free; where
//     the backend has a queue the next leader is woken by the release. RetryPeriod is the pause
//     after an error.
//   - Renewal is the business of the lock, every TTL/3. RenewDeadline alone says how long it may
//     fail.
//   - Run does not return when leadership is lost: it stands again. client-go's
//     programs exit there.
//   - The body runs on Run's goroutine, and its return is waited for. client-go starts it on a
//     goroutine of its own, calls OnStoppedLeading whether or not it was ever
//     started, and may release the lease while it still runs.
//   - The lock is always released at the end: there is no ReleaseOnCancel.
//   - There is a fencing token.
package election
