// Package redisfence guards data in Redis: a write whose fencing token is older than one seen
// before is refused.
//
// A [Guard] keeps the marks of many resources and a value for each: [Guard.Enter], [Guard.Read],
// [Guard.Write], [Guard.WriteOnce] and [Guard.Delete]. [Guard.Run] writes data of another shape,
// such as a list or several keys, with your own Lua. [Guard.Admit] only raises the mark, for guards
// that protect something else, such as fence/httpfence.
//
// # Rules
//
//  1. A step is one script, which Redis runs atomically: it checks the mark, raises it, and writes.
//     The rule is that of package fence.
//  2. The mark is raised before the data changes, and records the write afterwards. Work that fails
//     in the middle, which only the Lua of [Guard.Run] can do, leaves the mark raised and does not
//     count as written.
//  3. A mark has no expiry, and deleting the data does not delete it.
//  4. A mark that cannot be read admits no one. A resource without a mark is new.
//  5. Tokens are compared as numbers. Lua numbers are float64, which represents every integer up to
//     2^53 - 1, [lockstep.MaxToken], exactly; a stored token of more than 16 digits is not a valid
//     mark.
//  6. Each write carries a random number, and the mark keeps that of the last write. So a request
//     that go-redis itself repeats after a lost reply counts once, as long as no other write of the
//     same grant came in between. A new call is a new write; [fence.WriteOnce] makes writes count
//     once across calls.
//
// # In Redis
//
// A resource belongs to one of 256 buckets by its FNV-1a hash. The keys are
//
//	PREFIX:{BUCKET}:mark:RESOURCE   the mark, a hash: backend, lock, token, written, nonce
//	PREFIX:{BUCKET}:data:RESOURCE   the value as it was written, a string; any program may read it
//
// so that both are in one slot of a Redis Cluster, whatever braces a name contains.
//
// # Servers
//
// Redis 7 or later, standalone, behind Sentinel or as a Cluster. A server that evicts keys without
// an expiry (a maxmemory with a policy of allkeys-lru, allkeys-lfu, allkeys-random or the like) is
// refused with [lockstep.ErrUnsupported], since an evicted mark is a forgotten token. So is a
// server that does not report its policy because the user has no right to INFO. The guard asks once
// for each bucket; it does not notice if the policy changes later. A user with restricted rights
// needs EVAL, EVALSHA, INFO, GET, SET, DEL, EXISTS, HMGET, HSET and HDEL on the keys.
//
// # What a failover does
//
// Redis answers before its replicas have copied what it wrote. When a replica takes over, it may be
// missing the last steps, both the data and the raised mark. What the replica has is consistent,
// since a script is replicated as a whole; but the token of a holder whose Enter was lost is
// forgotten, and an older holder that wakes then is admitted until the newer one writes again. The
// same happens if a server restarts with less than it had: keep "appendonly yes" and "appendfsync
// always". A server without persistence forgets all marks. "min-replicas-to-write" and WAIT narrow
// the gap but do not close it. If this matters, guard data in Postgres or etcd. Never copy, restore
// or flush data without its marks.
//
// # What it costs
//
// One round trip per step, and one more for a Guard's first step in each bucket. A mark with its
// key takes about 250 bytes and is never removed. A write sends the value once, plus about 200
// bytes.
//
// # What it cannot do
//
//   - It does not see a write by a client that bypasses the guard.
//   - A request that was sent but not answered may arrive later. If its grant is still the newest,
//     it takes effect then, even after another write of the same grant.
//   - Tokens of package redislock are not fencing tokens, and [fence.For] refuses them.
package redisfence
