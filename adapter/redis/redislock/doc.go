// Package redislock is the lock on one Redis key: a [lockstep.Locker] for work that should not be
// done twice, but may be.
//
// # What it promises and what it does not
//
// While one Redis server runs, keeps its data and its clock is right, a lock has one holder. A lock
// here saves work. It does not protect data:
//
//   - Redis answers before its replicas have copied what it wrote. When a replica takes over, the
//     locks that it has not copied are lost, and a second holder is granted beside the first. So is
//     a lock whose server starts again without its data, and one that was evicted.
//   - The lease ends by the server's clock. When that is set forward, leases end while their
//     holders believe in them.
//   - The token is not a fence: Capabilities says Fenced = false, and guards refuse it. It rises
//     while the server keeps its data, or while its clock does not go back. Across a failover
//     neither is certain.
//   - Waiters have no order.
//
// A holder whose record is gone finds out at its next renewal, TTL/3 later at most: the lock is
// lost with [lockstep.RecordMissing]. Where data is at stake, use a backend that is fenced together
// with a guard.
//
// # Servers
//
// Redis 7 or later, or what says that it is, alone, behind Sentinel or as a Cluster. An older one
// is [lockstep.ErrUnsupported], and so is one that evicts keys (a maxmemory with a policy other
// than noeviction), unless [Config] accepts that. Both are looked up before the first lock, once
// for each key slot in a Cluster. A user with restricted rights needs EVAL, EVALSHA, TIME, EXISTS,
// GET, SET, HMGET, HGET, HSET, PEXPIRE, DEL on the keys, and should have INFO, PUBLISH and
// SUBSCRIBE on the channels of the same names.
//
// # Protocol
//
// Everything is done by scripts, each of which Redis runs alone:
//
//	take     absent: token = max(counter + 1, clock floor), write record with PX = TTL. Present: busy, with who holds it
//	extend   the record has our id: PEXPIRE. Otherwise: missing
//	release  the record has our id: DEL, and PUBLISH to those who wait. Otherwise: missing
//
// A name belongs to one of 256 buckets by its FNV-1a hash. The keys are
//
//	PREFIX:{BUCKET}:lock:NAME   the record, a hash: id (secret), token, owner, since, metadata
//	PREFIX:{BUCKET}:token       the counter of the bucket's names; it has no expiry
//
// so that both are in one slot of a Cluster whatever braces a name contains. A counter per name
// would stay behind for every name that was ever used, and one for all names would bind all locks
// to one node of a Cluster. 256 counters do neither.
//
// The clock floor is (seconds since 2025-01-01 << 22) + microseconds of the server's clock. It is
// what keeps tokens rising when the counter was lost: a counter never overtakes it, as no server
// grants four million locks in a second.
//
// A waiter asks again after a jittered wait of up to 500 ms, or 2 s in a crowd. Goroutines of one
// Locker that want the same lock at the same time share one question. A release also wakes one
// waiter of each Locker, through one subscription that exists while there are waiters.
//
// # Invariants
//
//  1. Nothing but release deletes a record, and it compares the id first. Each attempt has an id of
//     its own.
//  2. A record always has an expiry: it is written and given one in one step.
//  3. A script that fails has changed no lock.
//  4. No command is sent twice: whether a repeated release found nothing because the first one
//     worked could not be told.
//  5. What undoes an attempt is sent after that attempt has ended on this side, so that it does not
//     overtake it.
//  6. The tokens of a bucket rise as long as its counter is kept, whatever the clock does.
package redislock
