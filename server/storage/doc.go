// Package storage keeps what a node must not forget: the Raft logs of its groups, their hard states
// and their snapshots. Logs are in one Pebble instance, snapshots in files next to it:
//
//	DIR/LOCK        held by the process that uses the directory
//	DIR/IDENTITY    the owning cluster, node and instance, and the oldest program allowed
//	DIR/WAL         number of the newest write-ahead log known to exist
//	DIR/log/        the Pebble instance
//	DIR/snapshots/  GROUP-INDEX-TERM.snap, the last two of each group
//
// # Invariants
//
//  1. When Append has returned nil, everything given to it survives a power cut, except a commit
//     index that came alone: Raft finds that out again.
//  2. The log of a group has no gap, and its recorded last index is that of its last entry.
//  3. The log reaches back to the older one of the kept snapshots, so a damaged newest snapshot
//     loses nothing.
//  4. A snapshot file under its final name is complete and synced, and so is its directory.
//  5. After a failed write nothing more is written: a sync that failed once may have dropped data
//     without a second one noticing.
//  6. A shortage of file descriptors fails no write: whatever has to open a file waits until there
//     is one.
//
// Recovery fails closed: a directory of another cluster or node, of a newer format, with damage in
// the middle of a log, or with acknowledged entries missing is refused with a [*RefusedError] that
// says what to do. Only an incomplete last record is dropped: it is indistinguishable from a write
// torn by a power cut, which was never acknowledged.
//
// A directory is trusted to be the only copy of its node: an older copy that is put back has
// forgotten votes and entries, and nothing in it shows that.
package storage
