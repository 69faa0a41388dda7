// Package redisfence guards data in Redis: a write that carries an older fencing token than one
// seen before is refused.
//
// A [Guard] keeps the marks of many resources and a value for each: [Guard.Enter], [Guard.Read],
// [Guard.Write], [Guard.WriteOnce] and [Guard.Delete]. Data of another shape, such as a list or
// several keys, is written by [Guard.Run] with a piece of Lua of yours. [Guard.Admit] raises the
// mark alone, for guards that protect something else, such as fence/httpfence.
//
// # Rules
//
//  1. A step is one script, which Redis runs alone: it looks at the mark, raises it, and writes.
//     The rule is that of package fence.
//  2. The mark is raised before the data changes, and notes the write after it. Work that fails in
//     the middle, which only the Lua of [Guard.Run] can do, leaves the mark raised and does not
//     count as written.
//  3. A mark has no expiry, and deleting the data keeps it.
//  4. A mark that cannot be read admits nobody. A resource without one is new.
//  5. Tokens are compared as numbers. Those of Lua are float64, which holds every integer up to
//     2^53 - 1 exactly, and that is [lockstep.MaxToken]; a stored token of more than 16 digits is
//     no mark.
//  6. A write carries a number of its own, drawn at random, and the mark keeps that of the last
//     write. So what go-redis sends again by itself after a lost reply counts once, as long as no
//     other write of the same grant came in between. Another call is another write; across calls it
//     is [fence.WriteOnce] that counts once.
//
// # In Redis
//
// A resource belongs to one of 256 buckets by its FNV-1a hash. The keys are
//
//	PREFIX:{BUCKET}:mark:RESOURCE   the mark, a hash: backend, lock, token, written, nonce
//	PREFIX:{BUCKET}:data:RESOURCE   the value as it was written, a string; any program may read it
//
// so that both are in one slot of a Cluster whatever braces a name contains.
//
// # Servers
//
// Redis 7 or later, alone, behind Sentinel or as a Cluster. One that evicts keys without an expiry
// (a maxmemory with a policy of allkeys-lru, allkeys-lfu, allkeys-random or the like) is refused
// with [lockstep.ErrUnsupported], since an evicted mark is a forgotten token; so is one that does
// not tell its policy, because its user has no right to INFO. It is asked once for each bucket; a
// policy that is changed later is not noticed. A user with restricted rights needs EVAL, EVALSHA,
// INFO, GET, SET, DEL, EXISTS, HMGET, HSET and HDEL on the keys.
//
// # What a failover does
//
// Redis answers before its replicas have copied what it wrote. When a replica takes over, the last
// steps may be missing there, the data and the raised mark alike. What the replica has belongs
// together, as a script is copied whole; but the token of a holder whose Enter was lost is not seen
// any more, and an older holder that wakes then is admitted until the newer one writes again. The
// same is so when a server starts again with less than it had: keep "appendonly yes" and
// "appendfsync always". A server without persistence forgets all marks. "min-replicas-to-write" and
// WAIT make the gap smaller and do not close it. Where it matters, guard data in Postgres or etcd.
// Never copy, restore or flush data without their marks.
//
// # What it costs
//
// One round trip for a step, and one more for the first in each bucket of a Guard. A mark takes
// about 250 bytes with its key, and stays for good. A write sends the value once, and about 200
// bytes.
//
// # What it cannot do
//
//   - A write that goes past the guard, by any client of the server, is not seen.
//   - A request that was sent and not answered may arrive later. When its grant is the newest
//     still, it takes effect then, also after another write of the same grant.
//   - Tokens of package redislock are no fence, and [fence.For] refuses them.
package redisfence
