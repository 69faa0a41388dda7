package node_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/node"
)

// A cluster of one node: it elects itself and serves.
func Example() {
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	n, err := node.New(node.Config{
		Name: "n1", DataDir: dir + "/data", Listener: listener,
		Members: map[string]string{"n1": listener.Addr().String()},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	for !n.Status().Serving {
		time.Sleep(10 * time.Millisecond)
	}

	replies := make(chan []lead.Reply, 1)
	stream := n.Connect(func(rs []lead.Reply) { replies <- rs })
	if err := n.Submit([]lead.Request{{Stream: stream, Tag: 1, Received: n.Now(), Body: lead.ReadLock{Name: "billing/nightly"}}}); err != nil {
		log.Fatal(err)
	}
	lock := (<-replies)[0].Answer.(lead.LockRead).Lock
	fmt.Printf("%s has %d holders\n", lock.Name, len(lock.Holders))

	n.Disconnect(stream)
	stop()
	fmt.Println("stopped:", <-ended)
	// Output:
	// billing/nightly has 0 holders
	// stopped: <nil>
}
