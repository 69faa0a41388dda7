// Package transport carries Raft messages and snapshots between the nodes of a cluster
// over framed TCP, or whatever the given dialer and listener speak.
//
// Each node dials each other one, so between two nodes there is one ordered stream in
// each direction. A stream starts with a handshake in which the dialer, and then the acceptor,
// proves that it knows the cluster's secret, and both name themselves and their cluster; a refusal
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
//  6. At most 64 accepted connections have not proved the secret, 8 from one host (for each peer there), and 48 from
//     hosts of no peer. One more takes the place of the one that has been silent for longest. A greeting must come
//     within 1 s, and the handshake end within 5 s. At most 80 have proved it.
package transport
