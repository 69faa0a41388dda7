// Package command is the vocabulary of the lock table: the commands that go into the log, what
// applying them gives, and the encoding of both in bytes.
//
// A [Command] is put into an [Entry], which the leader appends to the log. Every replica gives the
// decoded entry to its lock table (package machine), which answers with an [Output]: a result for
// each command, changes that owners have to be told, timers for the leader, and events of the
// history. The types of an answer that a reader of the table gets, [Holder] and [Lock], are here as
// well, so that what converts, stores or checks these values needs no lock table.
//
// The package has no state and decides nothing. It imports no other package of this repository.
//
// # Invariants
//
//  1. What is encoded never changes its meaning: the numbers of kinds and codes are not reused, and
//     a new kind of command or field of [Limits] has a feature level that no released build knows
//     ([LevelOf]).
//  2. Decoding gives back what was encoded, or an error. What only a newer build can read is
//     [ErrNewer]. No input makes it panic, or allocate more than a few times its size.
//  3. A decoded entry shares no memory with the bytes that it was decoded from.
//
// Encoding appends to a slice of the caller's ([AppendEntry]), and most commands are decoded with
// one string, which their names and labels share ([DecodeEntry]). Package machine encodes snapshots
// with the same functions: the Append functions and [Decoder].
package command
