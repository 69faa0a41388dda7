// Package etcdfence guards data in etcd: a write whose fencing token is older than one seen before
// is refused.
//
// A [Guard] keeps the marks of many resources and a value for each: [Guard.Enter], [Guard.Read],
// [Guard.Write], [Guard.WriteOnce] and [Guard.Delete]. [Guard.Commit] writes data in your own keys;
// its operations are part of the transaction that checks the mark. [Guard.Admit] only raises the
// mark, for guards that protect something else, such as fence/httpfence.
//
// # Rules
//
//  1. A step is one etcd transaction: its conditions check the mark, and it raises the mark and
//     writes. The rule is that of package fence.
//  2. A resource without a mark is a separate case, because comparing a missing value is always
//     false: if the transaction finds no mark, another one creates it on condition that there is
//     still none.
//  3. The mark is attached to no lease, and deleting the data keeps it.
//  4. Tokens are stored with 16 digits, the length of [lockstep.MaxToken], because etcd compares
//     bytes.
//
// # In etcd
//
// The keys are
//
//	PREFIX/mark/RESOURCE      "BACKEND LOCK", a line feed, and the highest token seen
//	PREFIX/written/RESOURCE   the token of the last write; zeros: none
//	PREFIX/data/RESOURCE      the value as it was written; any program may read it
//
// A backend's id contains no space and a lock name no line feed, so in byte order all marks of one
// lock are adjacent, sorted by token. "Same lock, and not a later token" is then two comparisons on
// one key.
//
// # What it costs
//
// A step costs one round trip and one log write; the first step on a resource costs one more round
// trip. A step writes two small keys in addition to the data, or one to enter; etcd keeps their
// history until compaction. A mark with its keys takes about 300 bytes and is never removed.
//
// # What it cannot do
//
//   - It does not see a write by an etcd client that bypasses the guard. etcd's users and roles can
//     prevent such writes: the client's user needs permission to read and write all keys that begin
//     with PREFIX and "/".
//   - A request that was sent but not answered may arrive later. If its grant is still the newest,
//     it takes effect then, even after another write of the same grant.
//   - Restoring an etcd backup brings back the data with its marks, which match. But tokens issued
//     since the backup are forgotten: a holder from before the restore is admitted until a newer
//     one enters. Restore while no writer is running and, if the locks are in the same etcd, with
//     --bump-revision and --mark-compacted; otherwise their tokens go back.
package etcdfence
