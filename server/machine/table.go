package machine

import (
	"cmp"

	"github.com/lockstep-dev/lockstep/server/command"
)

// shardCount is the number of parts of the session table. A snapshot is captured part by part, and
// during a capture the first change of each part waits until that part is encoded: 50,000 sessions
// with 200,000 claims make parts of 6 KiB, which take 15 to 30 us. With 256 parts, an entry of 64
// commands could wait for 64 parts of 0.4 ms.
const shardCount = 4096

// shardOf uses the random part of the id.
func shardOf(id command.SessionID) int { return (int(id[14])<<8 | int(id[15])) % shardCount }

// nameTables is the number of tables of names, each of which shrinks on its own.
const nameTables = 256

// A table is a map that releases its memory. A Go map never shrinks, so a burst of a million names
// would occupy memory until the next restart.
type table[K cmp.Ordered | command.SessionID, V any] struct {
	m    map[K]V
	peak int // the largest size since the map was made
}

func (t *table[K, V]) put(k K, v V) {
	if t.m == nil {
		t.m = make(map[K]V)
	}
	t.m[k] = v
	t.peak = max(t.peak, len(t.m))
}

// minPeak is the peak size below which shrinking a table saves next to nothing.
const minPeak = 16

func (t *table[K, V]) remove(k K) {
	delete(t.m, k)
	if t.peak < minPeak || len(t.m) > t.peak/4 {
		return
	}
	m := make(map[K]V, len(t.m))
	for k, v := range t.m { // nothing depends on the order in which a map is copied
		m[k] = v
	}
	t.m, t.peak = m, len(m)
}
