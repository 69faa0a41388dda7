// Package protocol translates between wire messages and the requests and replies of package lead,
// and checks the form of every request.
//
// It is pure: no I/O, no clock, and randomness only from the reader that a caller passes in.
// Package service runs it behind gRPC and package sim behind a simulated network.
//
// # What others rely on
//
//  1. A request that breaks a rule of form is refused here, before anything is proposed: it never
//     reaches the log. The error names the field, the rule and the limit, and repeats at most 64
//     bytes of what was sent, escaped.
//  2. A malformed session id, and a secret of the wrong length, get exactly the error that an
//     unknown session gets.
//  3. No duration is converted before it has been compared with its limit, so none overflows.
//  4. Each reason, each refusal by the machine and each refusal by the leader has one row in a
//     table of this package.
package protocol

// Bounds of what a client may send, in addition to those of package lockstep.
const (
	// MaxRequestBytes bounds one encoded request. The largest that passes the other rules is about
	// 10 KiB: 16 names of 512 bytes and 1 KiB of metadata.
	MaxRequestBytes = 64 << 10

	// MaxFrameBytes bounds one frame of a stream, in either direction. 1 MiB holds some 20,000
	// keepalives; it is a quarter of what gRPC clients accept by default.
	MaxFrameBytes = 1 << 20

	// MaxFrameRequests bounds the requests of one frame, so that a frame of tiny requests does not
	// keep the replica busy for long.
	MaxFrameRequests = 16_384

	// MaxNonceBytes bounds the nonce of a claim. A nonce is a random number as text, for which 64
	// bytes are plenty.
	MaxNonceBytes = 64

	// MaxByBytes and MaxReasonBytes bound the texts that a revocation carries.
	MaxByBytes     = 128
	MaxReasonBytes = 512

	// DefaultPage is how many locks, waiters or events a read call returns by default. MaxPage
	// bounds locks and events, MaxWaiters the waiters. MaxHolders bounds the holders of one lock,
	// and is their default.
	DefaultPage = 100
	MaxPage     = 1000
	MaxWaiters  = 16_384
	MaxHolders  = 1_000
)
