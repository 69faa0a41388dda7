// Package session is the pure half of the native client: one session with the service, as a plain
// struct that takes what arrived and returns what to send.
//
// A [Session] starts no goroutine, reads no clock and does no I/O. A shell passes it the time with
// every call, passes it the events of its stream, sends the requests that [Session.Drain] returns
// and acts on its updates. Package client is that shell for real networks, and the simulator for
// simulated ones, so programs run the same code that the simulator checks.
//
// # A session in a shell
//
//	s := session.New(cfg)
//	connect, then s.Connected(now)         // Open on the first connection, Attach on later ones
//	for each event:  s.Receive(now, event)
//	at s.NextTick(): s.Tick(now)           // at least every 250 ms while a lock is held
//	when it breaks:  s.Disconnected(now)
//	after each call: requests, updates := s.Drain()
//
// The requests of one Drain are sent on the current connection in order, or not at all: after
// Disconnected nothing that was drained before may be sent.
//
// # What others rely on
//
//  1. A claim is handed out (Granted) only while the lease is valid at that call.
//  2. The lease moves only with a confirmed keepalive, from the time it was sent, and only if the
//     changes that its answer counts have been received.
//  3. At the end of the lease, or at the first call after it, every claim is reported to be over,
//     and nothing more is sent or handed out.
//  4. A claim keeps its number forever; a retry carries the same one. Cancelling a claim that was
//     given up is repeated until the service confirms it, so none is left behind.
//  5. For every claim there is exactly one of Refused, Abandoned, Lost and Released at
//     its end, and at most one Granted before.
package session
