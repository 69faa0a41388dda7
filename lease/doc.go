// Package lease is the holder's side of a lease: how long a holder may trust its lock, and how it
// keeps the lock alive.
//
// A [State] is a plain struct. It reads no clock and starts nothing, so simulators and tests run
// the same code as a program. [KeepAlive] is the shell around it for backends whose renewal is one
// call, such as Redis or Postgres.
//
// # Why the holder stops first
//
// A backend counts the TTL from when it handled a renewal, which is after the holder sent it. The
// holder counts from just before that send, subtracts [Margin], and reads a clock that keeps
// running while the machine is suspended ([SystemClock]). So its lease ends before the backend may
// grant the lock to another holder, as long as the rates of their clocks differ by less than 2 %,
// since (TTL - TTL/50) / 0.98 = TTL. Only these spans of time are compared across machines.
//
// # Invariants of a State
//
//  1. ValidUntil is the send time of a confirmed attempt + TTL - Margin. The arrival of a response,
//     a retry or a disconnect never sets it.
//  2. A confirmation never moves it back.
//  3. Once it has passed, the lease is over for good: a confirmation handled later does not revive
//     it.
package lease
