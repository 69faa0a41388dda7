// Package conformance runs real clusters inside the process of a test, with the real client, and
// holds both against the contract: the suite of package locktest, and the ways in which
// locks have gone wrong elsewhere.
//
// The client's own module cannot import the server, so the tests of the two together are
// here. Package faulttest does the same with processes that can be killed.
package conformance
