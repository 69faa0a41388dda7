// Package service serves the gRPC API of a node: it turns what clients send into requests to the
// node's replica, and the replica's replies into answers.
//
// It decides nothing about locks. Package protocol checks the form of requests before the node sees
// them; the replica answers everything else.
//
// # Streams
//
// A stream of Session has two goroutines. The reader records when the bytes of a frame were read,
// translates the whole frame and submits it at once; the writer sends all replies queued since its
// last frame in one frame. A stream ends with
//
//   - NOT_LEADER and the leader's address, as soon as this node is not the leader; if no leader is
//     known, it waits up to 250 ms for one to be elected;
//   - UNAVAILABLE when the node is shutting down and knows no other leader;
//   - INVALID_ARGUMENT when a frame is malformed, QUOTA_EXCEEDED when it has too many requests, and
//     gRPC's own RESOURCE_EXHAUSTED when it has too many bytes;
//   - OVERLOADED when the client does not read what it is sent.
//
// When a client closes its direction, the stream ends; answers still in flight are lost.
//
// # Unary calls
//
// A unary call is a replica stream that lives as long as the call. If an Acquire call ends before
// its claim is granted, the claim is cancelled. If the claim was granted meanwhile, it is kept if
// its caller can find it again, by the same seq or nonce, and cancelled otherwise. A grant that was
// answered, but whose answer was lost on the way, is kept until its session ends.
//
// # Forwarding
//
// A node that is not the leader forwards unary calls to the leader, over two connections of its
// own, one for calls that wait and one for the others. The deadline goes along, and the answer or
// the error with its details comes back. A call is forwarded only once: one that already was, or
// for which no leader is known, is answered NOT_LEADER. Status and streams are never forwarded.
//
// # Which cluster
//
// Every answer and every error has the id of the node's cluster in its metadata. A call that names
// another cluster there is refused with WRONG_CLUSTER; forwarded calls name their own cluster, so
// that they never take effect in a cluster whose node has taken over the address of a leader.
//
// # Health
//
// The standard health service answers SERVING while this node knows a leader and, if it is the
// leader itself, has a quorum and has applied an entry of its term. It checks every 200 ms.
//
// # What it does not do
//
// Panics are not recovered: a panic means that an invariant is broken, and the process ends.
package service
