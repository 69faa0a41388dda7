// Package transport carries Raft messages and snapshots between the nodes of a cluster
// over framed TCP, or whatever the given dialer and listener speak.
//
// Each node dials each other one, so between two nodes there is one ordered stream in
// each direction. A stream starts with a handshake in which both sides name
// themselves and their cluster and prove that they know the cluster's secret; a refusal
// carries its reason. Snapshots, and lines of the audit log that a peer asks for, go
// over connections of their own, at a bounded rate.
//
// The handshake authenticates the two ends, not the bytes that follow: a network whose
// packets others can change needs credentials in the dialer and listener (TLS).
//
// # Bounds
//
//  1. A frame is at most 4 MiB; a longer length prefix ends the connection
//     before anything is allocated for it.
//  2. At most 1 MiB waits unsent for one peer. What does not fit is dropped, which Raft
//     bears, and [Handler.Unreachable] is told once per burst. Votes, heartbeats and
//     their answers have 64 KiB of their own and go first.
//  3. A peer that takes no bytes for 3 s, or doesn't answer for 5 s a ping sent every second, is
//     dropped and dialled again after a jittered wait of 50 ms to 1 s.
//  4. One snapshot at a time is received, and one sent to each peer.
//  5. One answer at a time is sent from the audit log, at most 32 MiB a second.
package transport
