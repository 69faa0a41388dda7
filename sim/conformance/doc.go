// Package conformance runs real clusters inside a test process, with the real client, and tests
// both against the contract: with the suite of package locktest, and with the ways in which locks
// have gone wrong elsewhere.
//
// The client's own module cannot import the server, so the tests of the two together are here.
// Package faulttest does the same with processes that can be killed.
package conformance
