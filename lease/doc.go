// Package lease is the holder's side of a lease: until when a holder may believe
// in its lock, and how it keeps the lock alive.
//
// A [State] is a plain struct. It reads no clock and starts nothing, so that a
// simulator and a test run the same code as a program. [KeepAlive] is the shell
// round it for backends whose renewal is one call, such as Redis or Postgres.
//
// # Why the holder stops first
//
// A backend counts the TTL from when it handled a renewal, which is after the
// holder sent it. The holder counts from just before that very sending, takes
// off [Margin], and reads a clock that goes on while the machine is suspended
// ([SystemClock]). So its own end of the lease comes before the backend may
// grant the lock to another, as long as the rates of their clocks differ by less
// than 2 %, since (TTL - TTL/50) / 0.98 = TTL. Nothing is compared across
// machines but these spans of time.
//
// # Invariants of a State
//
//  1. ValidUntil is the sending time of a confirmed attempt + TTL - Margin. An
//     answer, a retry or a disconnect never sets it.
//  2. A confirmation never moves it back.
//  3. Once it has passed the lease is over for good: no confirmation that is
//     handled later brings it back.
package lease
