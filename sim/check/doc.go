// Package check holds the oracles of the simulator: what must be true of a committed log and of
// what clients were told, whatever failed in between.
//
// A [Book] is given every entry that any replica applies, in order of true time, and what clients
// receive. It keeps its own lock table, written from the rules and not from package machine: slow,
// without limits, and with queues as plain slices. Each grant of the service is compared with it.
// The first broken promise is returned as a [Violation].
//
// The book never predicts tokens. It checks the ones that were issued.
//
// The book trusts the service on things that no promise depends on: refusals because of limits, the
// text of answers, and the history.
package check
