// Package etcdfence guards data in etcd: a write that carries an older fencing token than one seen
// before is refused.
//
// A [Guard] keeps the marks of many resources and a value for each: [Guard.Enter], [Guard.Read],
// [Guard.Write], [Guard.WriteOnce] and [Guard.Delete]. Data in keys of yours are written by
// [Guard.Commit], whose operations are part of the transaction that looks at the mark.
// [Guard.Admit] raises the mark alone, for guards that protect something else, such as
// fence/httpfence.
//
// # Rules
//
//  1. A step is one transaction of etcd: its conditions are about the mark, and it raises the mark
//     and writes. The rule is that of package fence.
//  2. A resource without a mark is a case of its own, since a comparison of a value that is not
//     there is false: when the transaction finds no mark, another one creates it on the condition
//     that there is still none.
//  3. The mark is attached to no lease, and deleting the data keeps it.
//  4. Tokens are stored with 16 digits, which [lockstep.MaxToken] has, because etcd compares bytes.
//
// # In etcd
//
// The keys are
//
//	PREFIX/mark/RESOURCE      "BACKEND LOCK", a line feed, and the highest token seen
//	PREFIX/written/RESOURCE   the token of the last write; zeros: none
//	PREFIX/data/RESOURCE      the value as it was written; any program may read it
//
// A backend's id has no space and a lock name no line feed, so all marks of one lock lie together
// in the order of bytes, by rising token. "Same lock, and not a later token" is then two
// comparisons of one key.
//
// # What it costs
//
// One round trip and one write of the log for a step, and one more round trip for the first step at
// a resource. A step writes two small keys besides the data, or one to enter; etcd keeps their
// history until it is compacted. A mark takes about 300 bytes with its keys, and stays for good.
//
// # What it cannot do
//
//   - A write that goes past the guard, by any client of etcd, is not seen. etcd's users and roles
//     can keep others away: the client's user needs the permission to read and write all keys that
//     begin with PREFIX and "/".
//   - A request that was sent and not answered may arrive later. When its grant is the newest
//     still, it takes effect then, also after another write of the same grant.
//   - Restoring a backup of etcd brings back the data with their marks, which belong together. But
//     tokens that were given out since are not seen any more: a holder from before the restore is
//     admitted until a newer one enters. Restore with no writer at work, and when the locks are in
//     the same etcd, with --bump-revision and --mark-compacted, or their tokens fall.
package etcdfence
