// Package locktest is the conformance suite: what every implementation of [lockstep.Locker] must
// do, and what it must declare that it cannot do.
//
// A backend runs it from one of its own tests:
//
//	func TestConformance(t *testing.T) {
//		locktest.Run(t, locktest.Backend{
//			New: func(t *testing.T) lockstep.Locker { return mybackend.New(...) },
//		})
//	}
//
// The suite checks what a backend claims in its [lockstep.Capabilities], and that the backend
// refuses what it does not claim. For the backends of this project the claims themselves must match
// a fixed table. Optional interfaces such as [lockstep.Inspector] are checked if they are
// implemented. Faults are checked as far as [Server] can cause them. A check that does not apply is
// skipped with the reason, and Run ends with the list of both.
//
// The suite measures time on the machine it runs on. Bounds that the contract sets for the holder,
// such as the end of a lease, are checked exactly; those for the backend are extended by
// [Backend.Slack].
package locktest
