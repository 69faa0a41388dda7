// Package fencetest is the conformance suite of guards: what each of them must refuse,
// accept and survive, whatever it protects.
//
// A guard runs it from a test of its own:
//
//	func TestConformance(t *testing.T) {
//		fencetest.Run(t, fencetest.Guard{
//			Open: func(t *testing.T, resource string) fencetest.Store { return myguard.Open(...) },
//		})
//	}
//
// [Store] is the little that the suite needs: read a value, write, enter and delete with a grant. A
// guard of marks alone, without data, is tested together with something that it protects. Work that
// is done once in a grant is checked when the store is a [OnceStore]. What happens when a writer
// dies or a reply is lost is checked as far as [Guard] can cause it. A check that does not apply is
// skipped with the reason, and Run ends with the list of both.
//
// The suite gives each check a resource and a lock name of its own, so that it can run again on a
// store that keeps what it has seen.
package fencetest
