package machine

import "cmp"

// shardCount is the number of parts of the session table and of the name table. A snapshot
// is captured part by part.
const shardCount = 256

func shardOf(id SessionID) int { return int(id[len(id)-1]) } // a random byte

// A table is a map that gives its memory back. A Go map never shrinks, and a
// burst of a million names would be paid for until the next restart.
type table[K cmp.Ordered | SessionID, V any] struct {
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

// minPeak is the size of a table below which shrinking it saves nothing. There are
// 256 tables of each kind.
const minPeak = 16

func (t *table[K, V]) remove(k K) {
	delete(t.m, k)
	if t.peak < minPeak || len(t.m) > t.peak/4 {
		return
	}
	m := make(map[K]V, len(t.m))
	for k, v := range t.m { // the order in which a map is copied is seen by nobody
		m[k] = v
	}
	t.m, t.peak = m, len(m)
}
