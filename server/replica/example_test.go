package replica_test

import (
	"crypto/rand"
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/server/replica"
)

// A cluster of one, driven by hand: a shell gives the replica the time and its inputs, and carries
// out what a turn returns. Here every write is durable at once.
func Example() {
	r, err := replica.New(replica.Config{
		ID:   1,
		Rand: rand.Reader, AnyLevel: true,
		Recovered: replica.Recovered{
			Snapshot: &raftpb.SnapshotMetadata{
				Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: []uint64{1}},
			},
			Machine: machine.New(),
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	now, wall := lead.Time(0), command.WallMillis(1_767_225_600_000)
	run := func(d time.Duration, inputs ...replica.Input) (replies []lead.Reply) {
		for _, in := range inputs {
			r.Step(in)
		}
		for end := now + lead.Time(d); now < end; now += lead.Time(time.Millisecond) {
			out := r.Turn(now, wall)
			if n := len(out.Appends); n > 0 {
				r.Step(replica.Persisted{Appends: n})
			}
			replies = append(replies, out.Replies...)
		}
		return replies
	}

	run(3 * time.Second) // elects itself
	fmt.Println(r.Status().Role, "serving:", r.Status().Serving)

	const stream = 7
	secret := command.Secret{1, 2, 3}
	opened := run(time.Second, replica.Asked{Request: lead.Request{
		Stream: stream, Tag: 1, Body: lead.Open{TTL: 10_000, Secret: secret, ClientNumbered: true, Attach: true},
	}})[0].Answer.(lead.Opened)

	claim := command.Acquire{Seq: 1, Spec: command.Spec{Names: []string{"billing/nightly"}}}
	claimed := run(time.Second, replica.Asked{Request: lead.Request{
		Stream: stream, Tag: 2, Session: opened.Session, Body: lead.Acquire{Claim: claim},
	}})[0].Answer.(lead.Claimed)
	fmt.Println("granted:", claimed.Claim.State == command.Granted, "token:", claimed.Claim.Token > 0)

	// The client falls silent: its lease and the grace pass.
	ended := run(12 * time.Second)[0].Answer.(lead.Ended)
	fmt.Println("expired:", ended.Code == command.SessionExpired)
	// Output:
	// leader serving: true
	// granted: true token: true
	// expired: true
}
