package lockstep

import "context"

// pingName is the lock that [Ping] reads. Nobody needs to hold it.
const pingName = "lockstep/ping"

// Ping reports whether the backend of l serves: nil when it has answered a read, which needs what
// all its reads need, such as a leader and a majority of its nodes. Call it at the start of a
// program: making a [Locker] does no I/O, so a wrong address would show at the first Acquire only.
// A later Acquire may fail all the same.
//
// Ping takes no lock and changes nothing. ctx bounds it; without a deadline it gives up as other
// reads of the backend do. The error is that of the read, such as [ErrUnavailable], or
// [ErrUnsupported] when l is not an [Inspector].
func Ping(ctx context.Context, l Locker) error {
	inspector, ok := l.(Inspector)
	if !ok {
		return &OpError{Op: "ping", Err: ErrUnsupported}
	}
	_, err := inspector.Inspect(ctx, pingName)
	return err
}
