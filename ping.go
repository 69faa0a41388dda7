package lockstep

import "context"

// pingName is the lock that [Ping] reads. No one needs to hold it.
const pingName = "lockstep/ping"

// Ping reports whether the backend of l is serving. Nil means that it has answered a read, which
// needs whatever all its reads need, such as a leader and a majority of its nodes. Call it when a
// program starts: creating a [Locker] does no I/O, so a wrong address would otherwise show only at
// the first Acquire. A later Acquire may still fail.
//
// Ping takes no lock and changes nothing. ctx bounds it; without a deadline it gives up when other
// reads of the backend would. The error is the one from the read, such as [ErrUnavailable], or
// [ErrUnsupported] if l is not an [Inspector].
func Ping(ctx context.Context, l Locker) error {
	inspector, ok := l.(Inspector)
	if !ok {
		return &OpError{Op: "ping", Err: ErrUnsupported}
	}
	_, err := inspector.Inspect(ctx, pingName)
	return err
}
