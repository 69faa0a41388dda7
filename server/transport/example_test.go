package transport_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/transport"
)

// An inbox hands messages over and admits everybody.
type inbox chan *raftpb.Message

func (b inbox) Admit(transport.Identity, bool) error { return nil }
func (b inbox) Rejected(uint64, error)               {}
func (b inbox) Unreachable(uint64)                   {}
func (b inbox) Receive(_ uint32, msgs []*raftpb.Message) {
	for _, m := range msgs {
		b <- m
	}
}
func (b inbox) ReceiveSnapshot(context.Context, uint32, *raftpb.Message, io.Reader) error {
	return nil
}

// Two nodes; the first sends the second a heartbeat.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var listeners [2]net.Listener
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			log.Fatal(err)
		}
		listeners[i] = l
	}
	arrived := make(inbox, 1)
	ended := make(chan error, 2)
	var nodes [2]*transport.Transport
	for i := range nodes {
		t, err := transport.New(transport.Config{
			Self:     transport.Identity{ClusterID: "c0ffee", Node: uint64(i + 1)},
			Peers:    []transport.Peer{{Node: uint64(2 - i), Address: listeners[1-i].Addr().String()}},
			Listener: listeners[i], Handler: arrived,
			Secrets: func() [][]byte { return [][]byte{[]byte("an example of no use elsewhere")} },
		})
		if err != nil {
			log.Fatal(err)
		}
		nodes[i] = t
		go func() { ended <- t.Run(ctx) }()
	}
	for !nodes[0].Peers()[0].Reachable {
		if _, err := nodes[0].Ask(ctx, 2); err != nil {
			log.Fatal(err)
		}
	}
	nodes[0].Send(1, []*raftpb.Message{{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(1)), To: new(uint64(2))}})
	fmt.Println((<-arrived).GetType())

	stop()
	fmt.Println(<-ended, <-ended)
	// Output:
	// MsgHeartbeat
	// <nil> <nil>
}
