package redisfence

import (
	"fmt"
	"hash/fnv"
)

// buckets is the maximum number of Cluster slots used. It is part of the protocol: a program with
// another number would not see the others' marks.
const buckets = 256

func bucketOf(resource string) int {
	h := fnv.New32a()
	h.Write([]byte(resource))
	return int(h.Sum32() % buckets)
}

// keys are the keys of one resource. The braces make Redis Cluster hash only the bucket.
type keys struct {
	mark, data string
	bucket     int
}

func keysOf(prefix, resource string) keys {
	b := bucketOf(resource)
	slot := fmt.Sprintf("%s:%s:", prefix, tagOf(b))
	return keys{mark: slot + "mark:" + resource, data: slot + "data:" + resource, bucket: b}
}

func tagOf(bucket int) string { return fmt.Sprintf("{%02x}", bucket) }
