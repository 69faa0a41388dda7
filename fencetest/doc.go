// Package fencetest is the conformance suite for guards: what every guard must refuse, accept and
// survive, whatever it protects.
//
// A guard runs it from one of its own tests:
//
//	func TestConformance(t *testing.T) {
//		fencetest.Run(t, fencetest.Guard{
//			Open: func(t *testing.T, resource string) fencetest.Store { return myguard.Open(...) },
//		})
//	}
//
// [Store] is the minimum that the suite needs: read a value, and write, enter and delete with a
// grant. A guard that keeps only marks, without data, is tested together with something that it
// protects. Writing once per grant is checked if the store is a [OnceStore]. Dying writers and lost
// replies are checked as far as [Guard] can cause them. A check that does not apply is skipped with
// the reason, and Run ends with the list of both.
//
// The suite gives each check its own resource and lock name, so it can run again on a store that
// keeps what it has seen.
package fencetest
