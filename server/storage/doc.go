// Package storage keeps what a node must not forget: the Raft logs of its groups, their
// hard states and their snapshots. Logs lie in one Pebble instance, snapshots
// in files beside it:
//
//	DIR/LOCK        held by the process that uses the directory
//	DIR/IDENTITY    cluster, node and instance that the directory belongs to, and the oldest program that may use it
//	DIR/WAL         number of the newest write-ahead log known to exist
//	DIR/log/        the Pebble instance
//	DIR/snapshots/  GROUP-INDEX-TERM.snap, the last two of each group
//
// # Invariants
//
//  1. When Append has returned nil, everything given to it survives a power cut,
//     but for a commit index that came alone: Raft finds that out again.
//  2. The log of a group has no gap, and its recorded last index is that of its last entry.
//  3. The log reaches back to the older one of the snapshots that are kept, so
//     a damaged newest snapshot loses nothing.
//  4. A snapshot file under its final name is complete and synced, and so is its directory.
//  5. After a failed write nothing is written any more: a sync that failed once may
//     have dropped data that a second one would not notice.
//  6. A shortage of file descriptors fails no write: what has to open a file waits until there is one.
//
// Recovery fails closed: a directory of another cluster or node, of a newer format, with
// damage in the middle of a log or with acknowledged entries missing is refused with a
// [*RefusedError] that says what to do. Only an incomplete last record is dropped: it cannot be
// told from a write that a power cut tore, which nobody was told of.
//
// A directory is trusted to be the only copy of its node: an older copy that is
// put back has forgotten votes and entries, and nothing in it shows that.
package storage
