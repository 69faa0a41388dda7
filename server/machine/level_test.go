package machine

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
)

// TestALogOfLevelOneGivesWhatItGaveThen replays a log and reads a snapshot that the last build of feature level 1 wrote,
// with the hash that it had after each entry. In a cluster at that level nodes of both builds apply the same log.
//
// testdata/level1/log is entries: index, size, entry, and the hash in 8 bytes.
func TestALogOfLevelOneGivesWhatItGaveThen(t *testing.T) {
	log, err := os.ReadFile("testdata/level1/log")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/level1/snapshot")
	if err != nil {
		t.Fatal(err)
	}
	m := New()
	for len(log) > 0 {
		index, n := binary.Uvarint(log)
		log = log[n:]
		size, n := binary.Uvarint(log)
		e, err := DecodeEntry(log[n : n+int(size)])
		if err != nil {
			t.Fatal(err)
		}
		log = log[n+int(size):]
		m.Apply(index, 1, &e)
		if then := binary.BigEndian.Uint64(log); m.Hash() != then {
			t.Fatalf("entry %d %+v: hash %016x, then it was %016x", index, e.Commands, m.Hash(), then)
		}
		log = log[8:]
	}
	if !bytes.Equal(snapshot(m), want) {
		t.Error("the snapshot is another than then")
	}
	old, err := Restore(bytes.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(snapshot(old), want) || old.Limits().FeatureLevel != 1 {
		t.Error("the old snapshot is read as another state")
	}
}
