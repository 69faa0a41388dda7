package storage_test

import (
	"fmt"
	"log"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/storage"
)

// A new directory is bootstrapped once. What was appended is still there after a restart.
func Example() {
	cfg := storage.Config{Dir: "data", FS: vfs.NewMem(), ClusterID: "c0ffee", NodeID: 7}
	s, err := storage.Open(cfg)
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Bootstrap(1, &raftpb.ConfState{Voters: []uint64{7}}); err != nil {
		log.Fatal(err)
	}
	entry := &raftpb.Entry{Term: new(uint64(2)), Index: new(uint64(2)), Data: []byte("a command")}
	if err := s.Append(1, []*raftpb.Message{{Type: raftpb.MsgStorageAppend.Enum(), Term: new(uint64(2)), Entries: []*raftpb.Entry{entry}}}); err != nil {
		log.Fatal(err)
	}
	if err := s.Close(); err != nil {
		log.Fatal(err)
	}

	if s, err = storage.Open(cfg); err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	r, err := s.Recover(1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("term %d, entry %d: %s\n", r.HardState.GetTerm(), r.Entries[0].GetIndex(), r.Entries[0].GetData())
	// Output: term 2, entry 2: a command
}
