package machine

import "math/bits"

// A Mark is the running hash of a machine after all entries up to Index. Two machines of one history have
// the same hash at the same index.
type Mark struct{ Index, Hash uint64 }

// markLevels is how many powers of two have marks: enough for any index.
const markLevels = 64

// marks keeps, for each power of two, the hash at it and those at its last two multiples. Two machines of which one has at
// least half as many entries share a multiple near the end of the shorter log; any two share a power.
type marks struct {
	levels [markLevels][2]Mark // the newer one first; zero: none yet
	powers [markLevels]Mark
	start  Mark // where a snapshot was read; zero: none was
}

// pass notes the hash at the multiples after the entry before and up to index.
func (k *marks) pass(before, index, hash uint64) {
	if index == before {
		return
	}
	for l := range bits.Len64(before ^ index) { // higher bits are the same: no multiple between
		at := index >> l << l
		if at > before && at != k.levels[l][0].Index {
			k.levels[l][1] = k.levels[l][0]
			k.levels[l][0] = Mark{at, hash}
			if k.powers[l].Index == 0 && before < 1<<l {
				k.powers[l] = Mark{1 << l, hash}
			}
		}
	}
}

// Marks lists the hashes that this machine can be compared by, at most some 200, without order. It allocates; the caller
// may keep the slice.
func (m *Machine) Marks() []Mark {
	all := []Mark{{m.index, m.hash}}
	seen := map[uint64]bool{m.index: true}
	add := func(k Mark) {
		if k.Index != 0 && !seen[k.Index] {
			seen[k.Index] = true
			all = append(all, k)
		}
	}
	add(m.marks.start)
	for l := range m.marks.levels {
		add(m.marks.levels[l][0])
		add(m.marks.levels[l][1])
		add(m.marks.powers[l])
	}
	return all
}

// Differ finds the newest index at which two machines have other hashes.
func Differ(a, b []Mark) (index uint64, differ bool) {
	hashes := make(map[uint64]uint64, len(a))
	for _, k := range a {
		hashes[k.Index] = k.Hash
	}
	for _, k := range b {
		if hash, common := hashes[k.Index]; common && hash != k.Hash && k.Index >= index {
			index, differ = k.Index, true
		}
	}
	return index, differ
}
