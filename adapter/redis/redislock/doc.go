// Package redislock implements locks on a single Redis key: a [lockstep.Locker] for work that
// should not be done twice, but may be.
//
// # What it promises and what it does not
//
// While one Redis server runs, keeps its data and has a correct clock, a lock has one holder. Such
// a lock saves work. It does not protect data:
//
//   - Redis answers before its replicas have copied what it wrote. When a replica takes over, the
//     locks that it has not copied are lost, and a second holder may get one while the first still
//     holds it. The same happens if a server restarts without its data, or evicts the lock.
//   - The lease ends by the server's clock. If that clock is set forward, leases end while their
//     holders still trust them.
//   - The token is not a fencing token: Capabilities says Fenced = false, and guards refuse it. It
//     rises as long as the server keeps its data, or as long as its clock does not go back. Across
//     a failover neither is certain.
//   - Waiters are not ordered.
//
// A holder whose record is gone finds out at its next renewal, at most TTL/3 later: the lock is
// lost with [lockstep.RecordMissing]. Where data is at stake, use a fenced backend together with a
// guard.
//
// # Servers
//
// Redis 7 or later, or a server that reports such a version, standalone, behind Sentinel or as a
// Cluster. An older server is [lockstep.ErrUnsupported]. So is one that evicts keys (a maxmemory
// with a policy other than noeviction), unless [Config] accepts that. Both are checked before the
// first lock, in a Cluster once for each key slot. A user with restricted rights needs EVAL,
// EVALSHA, TIME, EXISTS, GET, SET, HMGET, HGET, HSET, PEXPIRE, DEL on the keys, and should have
// INFO, PUBLISH and SUBSCRIBE on the channels of the same names.
//
// # Protocol
//
// Everything is done by scripts, each of which Redis runs atomically:
//
//	take     absent: token = max(counter + 1, clock floor), write record with PX = TTL.
//	         Present: busy, with the holder
//	extend   the record has our id: PEXPIRE. Otherwise: missing
//	release  the record has our id: DEL, and PUBLISH to the waiters. Otherwise: missing
//
// A name belongs to one of 256 buckets by its FNV-1a hash. The keys are
//
//	PREFIX:{BUCKET}:lock:NAME   the record, a hash: id (secret), token, owner, since, metadata
//	PREFIX:{BUCKET}:token       the counter of the bucket's names; it has no expiry
//
// so that both are in one slot of a Cluster, whatever braces a name contains. A counter per name
// would remain for every name ever used, and one counter for all names would tie all locks to one
// node of a Cluster. 256 counters avoid both.
//
// The clock floor is (seconds since 2025-01-01 << 22) + microseconds of the server's clock. It
// keeps tokens rising after the counter was lost: a counter never overtakes it, since no server
// grants four million locks in a second.
//
// A waiter retries after a jittered wait of up to 500 ms, or 2 s if there are many waiters.
// Goroutines of one Locker that want the same lock at the same time share one request. A release
// also wakes one waiter of each Locker, through one subscription that exists while there are
// waiters.
//
// # Invariants
//
//  1. Only a release deletes a record, and it compares the id first. Each attempt has its own id.
//  2. A record always has an expiry: the record and its expiry are set in one step.
//  3. A script that fails has changed no lock.
//  4. No command is sent twice: a repeated release that finds nothing could not tell whether the
//     first one worked.
//  5. The command that undoes an attempt is sent after that attempt has ended locally, so that it
//     does not overtake it.
//  6. The tokens of a bucket rise as long as its counter is kept, regardless of the clock.
package redislock
