// Package transport carries Raft messages and snapshots between the nodes of a cluster over framed
// TCP, or whatever the given dialer and listener use.
//
// Each node dials every other one, so between two nodes there is one ordered stream in each
// direction. A stream starts with a handshake in which first the dialer, then the acceptor, proves
// that it knows the cluster's secret, and both name themselves and their cluster; a refusal carries
// its reason. Snapshots, and lines of the audit log that a peer asks for, have connections of their
// own, at a bounded rate.
//
// The handshake authenticates the two ends, not the bytes that follow: on a network where others
// can modify packets, use a dialer and a listener with credentials (TLS).
//
// # Bounds
//
//  1. A frame is at most 4 MiB; a longer length prefix ends the connection before anything is
//     allocated for it.
//  2. At most 1 MiB waits unsent for one peer. What does not fit is dropped, which Raft tolerates,
//     and [Handler.Unreachable] is called once per burst. Votes, heartbeats and their answers have
//     64 KiB of their own and go first.
//  3. A peer that accepts no bytes for 3 s, or for 5 s does not answer the ping sent every second,
//     is dropped and dialled again after a jittered wait of 50 ms to 1 s.
//  4. One snapshot at a time is received, and one sent to each peer.
//  5. One answer at a time is sent from the audit log, at most 32 MiB a second.
//  6. At most 64 accepted connections have not proved the secret: at most 8 from one host (for
//     each peer there) and at most 48 from hosts without a peer. A further one takes the place of
//     the one that has been silent for longest. A greeting must arrive within 1 s, and the
//     handshake end within 5 s. At most 80 connections have proved it.
package transport
