// Package locktest is the conformance suite: what every implementation of
// [lockstep.Locker] must do, and must admit that it cannot.
//
// A backend runs it from a test of its own:
//
//	func TestConformance(t *testing.T) {
//		locktest.Run(t, locktest.Backend{
//			New: func(t *testing.T) lockstep.Locker { return mybackend.New(...) },
//		})
//	}
//
// What a backend claims in its [lockstep.Capabilities] is checked, what it does
// not claim must be refused, and for the backends of this project the claims
// themselves must be the ones of a fixed table. Optional interfaces such as
// [lockstep.Inspector] are checked when they are implemented. Faults are checked
// as far as [Server] can cause them. A check that does not apply is skipped with
// the reason, and Run ends with the list of both.
//
// The suite measures time on the machine that it runs on. Bounds that the contract
// gives to the holder, such as the end of a lease, hold exactly; those for the
// backend get [Backend.Slack] on top.
package locktest
