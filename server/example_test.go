package server_test

import (
	"context"
	"fmt"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server"
)

// One node on free loopback ports, shut down gracefully by the end of its context.
func ExampleServer_Run() {
	dir, err := os.MkdirTemp("", "lockstep")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	s, err := server.New(server.Config{
		Name: "n1", DataDir: dir,
		Listen: "127.0.0.1:0", PeerListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0",
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // in a program: when a signal arrives
	fmt.Println("stopped:", s.Run(ctx))
	// Output: stopped: <nil>
}

// Three nodes in one process, as "lockstep dev" runs them.
func ExampleCluster() {
	dir, err := os.MkdirTemp("", "lockstep")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(context.Background())
	cluster, err := server.NewCluster(server.ClusterConfig{
		Nodes: 3, DataDir: dir,
		OnReady: func(endpoints []string) {
			defer cancel()
			conn, err := grpc.NewClient(endpoints[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			status, err := pb.NewAdminServiceClient(conn).Status(ctx, &pb.StatusRequest{})
			if err != nil {
				panic(err)
			}
			fmt.Println(len(status.GetMembers()), "members, and a leader:", status.GetLeader() != "")
		},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println("stopped:", cluster.Run(ctx))
	// Output:
	// 3 members, and a leader: true
	// stopped: <nil>
}

// A configuration that breaks a rule is refused before anything is opened.
func ExampleNew_wrongConfiguration() {
	_, err := server.New(server.Config{Name: "n1", DataDir: "data", Listen: ":7400"})
	fmt.Println(err)
	// Output: server: Listen: ":7400" is not a loopback address, and there is no access control yet: anyone who can reach the port has full access; set Insecure to allow this
}
