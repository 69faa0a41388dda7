// Package check holds the oracles of the simulator: what must be true of a committed
// log and of what clients were told, whatever failed in between.
//
// A [Book] is fed with every entry that any replica applies, in the order of true
// time, and with what clients hear. It keeps a lock table of its own, written from
// the rules and not from package machine: slow, without limits, and with queues as
// plain slices. Each grant that the service made is held against it. The first
// thing that breaks a promise is returned as a [Violation].
//
// The book never predicts tokens. It checks the ones that were issued.
//
// What the book takes from the service's word, because no promise hangs on it: refusals
// for limits, the text of answers, and the history.
package check
