// Package service serves the gRPC API of a node: it turns what clients send into requests
// of the node's replica, and the replica's replies into answers.
//
// It decides nothing about locks. The form of requests is checked by package protocol
// before the node sees them; everything else is answered by the replica.
//
// # Streams
//
// A stream of Session has two goroutines. The reader notes when the bytes of a frame were
// read, translates the whole frame and submits it at once; the writer sends all
// replies that have queued since its last frame in one. A stream ends with
//
//   - NOT_LEADER and the leader's address, as soon as this node does not lead; while no leader is
//     known it waits up to 250 ms for one to be elected;
//   - UNAVAILABLE when the node is going down and knows no other that leads;
//   - INVALID_ARGUMENT when a frame is malformed, QUOTA_EXCEEDED when it has too many requests, and gRPC's own
//     RESOURCE_EXHAUSTED when it has too many bytes;
//   - OVERLOADED when the client does not read what it is sent.
//
// A client that closes its direction ends the stream; answers still under way are lost.
//
// # Unary calls
//
// A unary call is a stream of the replica that lives as long as the call. A call of Acquire that ends
// before its claim is granted cancels the claim. If the claim was granted meanwhile, it is
// kept when its caller can find it again, by the same seq or nonce, and cancelled otherwise. A grant that was
// answered, but whose answer was lost on the way, is kept until its session ends.
//
// # Passing on
//
// A node that does not lead passes unary calls on to the leader, over two connections of its own, one for calls that
// wait and one for the others. The deadline goes along, and the answer or the error with its details comes back. A call is passed on once: one
// that was, or for which no leader is known, is answered NOT_LEADER. Status and streams are never passed on.
//
// # Which cluster
//
// Every answer and every error has the id of the node's cluster in its metadata. A call that names another cluster there
// is refused with WRONG_CLUSTER; calls that are passed on name their own, so that they never take effect in a cluster whose node
// has taken over the address of a leader.
//
// # Health
//
// The standard health service answers SERVING while this node knows a leader, and, if it is
// the leader itself, has a quorum and has applied an entry of its term. It looks every 200 ms.
//
// # What it does not do
//
// A panic is not recovered: it means that an invariant is broken, and the process ends.
package service
