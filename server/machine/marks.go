package machine

import "math/bits"

// A Mark is the running hash of a machine after all entries up to Index. Two machines with the same
// history have the same hash at the same index.
type Mark struct{ Index, Hash uint64 }

// markLevels is the number of powers of two that have marks: enough for any index.
const markLevels = 64

// marks keeps, for each power of two, the hash at that index and the hashes at its last two
// multiples. Two machines share a multiple near the end of the shorter log if one has at least half
// as many entries as the other; any two share a power.
type marks struct {
	levels [markLevels][2]Mark // the newer one first; zero: none yet
	powers [markLevels]Mark
	start  Mark // of the snapshot it was restored from; zero: none
}

// pass records the hash at those multiples that are after the entry before and not after index.
func (k *marks) pass(before, index, hash uint64) {
	if index == before {
		return
	}
	for l := range bits.Len64(before ^ index) { // higher bits are the same: no multiple in between
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

// Marks returns the hashes by which this machine can be compared, at most some 200, in no
// particular order. It allocates; the caller may keep the slice.
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

// Differ finds the newest index at which two machines have different hashes.
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
