// Package command is the vocabulary of the lock table: the commands that go into the log and their
// encoding, and the results, changes and events that come out.
//
// A [Command] is put into an [Entry], which the leader appends to the log. Every replica gives the
// decoded entry to its lock table (package machine), which answers with an [Output]: a result for
// each command, changes that owners have to be told, timers for the leader, and events of the
// history. What a reader of the table is shown, [Holder] and [Lock], is here as well. So packages
// that convert, store or check these values need no lock table.
//
// The package has no state and decides nothing. It imports no other package of this repository.
//
// # Invariants
//
//  1. What is encoded never changes its meaning: the numbers of kinds and codes are not reused, and
//     a new kind of command or field of [Limits] has a feature level that no released build knows
//     ([LevelOf]).
//  2. Decoding gives back what was encoded, or an error. What only a newer build can read is
//     [ErrNewer]. No input makes it panic, and no length in the input is trusted.
//  3. A decoded entry shares no memory with the bytes that it was decoded from.
//
// [AppendEntry] appends to a slice of the caller's. [DecodeEntry] makes one string per command,
// which its names and labels share. Package machine encodes and decodes the parts of snapshots with
// the other Append functions and [Decoder].
package command
