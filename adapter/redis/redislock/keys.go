package redislock

import (
	"fmt"
	"hash/fnv"
)

// buckets is the number of counters. It is part of the protocol: programs with different numbers
// would not see each other's locks. With 256 of them the locks spread over all nodes of a Cluster
// of any practical size.
const buckets = 256

// bucketOf is the bucket of a name.
func bucketOf(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % buckets)
}

// keys are the keys of one lock. The braces make Redis Cluster hash only the bucket, so that a
// script may use both.
type keys struct{ record, counter string }

func keysOf(prefix, name string) keys {
	slot := fmt.Sprintf("%s:{%02x}:", prefix, bucketOf(name))
	return keys{record: slot + "lock:" + name, counter: slot + "token"}
}
