// Package session is the pure half of the native client: one session with the
// service, as a plain struct that takes what arrived and gives what to send.
//
// A [Session] starts no goroutine, reads no clock and does no I/O. A shell tells it
// the time with every call, passes it the events of its stream, sends the requests
// that [Session.Drain] returns and acts on its updates. Package client is that
// shell for real networks, and the simulator for simulated ones, so what the
// simulator proves is what a program runs.
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
// The requests of one Drain go onto the present connection in order, or nowhere:
// after Disconnected nothing that was drained before may be sent.
//
// # What others rely on
//
//  1. A claim is handed out (Granted) only while the lease is valid at that call.
//  2. The lease moves only with a confirmed keepalive, from the time of the very
//     sending, and only when the changes that its answer counts were received.
//  3. At the end of the lease, at the latest at the first call after it, every claim
//     is told to be over, and nothing is sent or handed out any more.
//  4. A claim has one number for ever; a retry carries the same. A claim that is
//     given up is cancelled until the service has confirmed it, so none is left over.
//  5. For every claim there is exactly one of Refused, Abandoned, Lost and Released at
//     its end, and at most one Granted before.
package session
