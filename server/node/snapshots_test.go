package node

import (
	"log/slog"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/replica"
)

// A disk that is too slow costs a snapshot, not the memory.
func TestTheBytesOfASnapshotThatWaitForTheDiskAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		sizes []int
		fits  int
	}{
		"a large part alone":      {[]int{2 * maxWaiting, 1}, 1},
		"parts within the bound":  {[]int{maxWaiting / 2, maxWaiting / 2}, 2},
		"parts beyond it":         {[]int{maxWaiting / 2, maxWaiting/2 + 1, 1}, 1},
		"more parts than allowed": {make([]int, maxParts+1), maxParts},
	} {
		b := newInbox()
		w := newSnapshotWriter(nil, &b, &counts{}, slog.New(slog.DiscardHandler))
		meta := &raftpb.SnapshotMetadata{Index: new(uint64(7))}
		for i, size := range c.sizes {
			w.add(&replica.SnapshotPart{Metadata: meta, First: i == 0, Chunk: make([]byte, size)})
		}
		if len(w.parts) != c.fits {
			t.Errorf("%s: %d parts wait, want %d", name, len(w.parts), c.fits)
		}
		if got := b.mu.inputs; (len(got) == 1) != (c.fits < len(c.sizes)) || len(got) == 1 && got[0] != (replica.SnapshotFailed{Index: 7}) {
			t.Errorf("%s: the replica gets %v", name, got)
		}
	}
}
