package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/client/internal/wirefake"
)

// endpoints starts a cluster for an example; programs have the addresses in their
// configuration.
func endpoints() (addresses []string, stop func()) {
	_, nodes, stop, err := wirefake.Serve(3)
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range nodes {
		addresses = append(addresses, n.Address())
	}
	return addresses, stop
}

// Take a lock, do the work under it, and release it. The token goes with every write, so that the
// protected resource can refuse a holder that was superseded.
func Example() {
	addresses, stop := endpoints()
	defer stop()

	c, err := client.New(client.Config{Endpoints: addresses, TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(context.Background())

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // bounds only the wait
	defer cancel()
	l, err := c.Acquire(ctx, "billing/nightly")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("working with token", l.Token())
	if err := l.Release(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println("released:", errors.Is(l.Check(), lockstep.ErrReleased))
	// Output:
	// working with token 1
	// released: true
}

// A try takes the lock now or says who is in the way.
func ExampleClient_Acquire_try() {
	addresses, stop := endpoints()
	defer stop()
	c, err := client.New(client.Config{Endpoints: addresses})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(context.Background())

	ctx := context.Background()
	l, err := c.Acquire(ctx, "billing/nightly")
	if err != nil {
		log.Fatal(err)
	}
	_, err = lockstep.TryAcquire(ctx, c, "billing/nightly")
	fmt.Println("busy:", errors.Is(err, lockstep.ErrBusy))
	fmt.Println("released:", l.Release(ctx) == nil)
	// Output:
	// busy: true
	// released: true
}

// Endpoints of two clusters, such as after a forgotten --initial-cluster, return an error that
// names both: neither grants a lock. Config.Cluster says which cluster is wanted.
func ExampleClusterError() {
	addresses, stop := endpoints()
	defer stop()
	others, stopOthers := endpoints()
	defer stopOthers()
	c, err := client.New(client.Config{Endpoints: append(addresses, others...)})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(context.Background())

	_, err = c.Acquire(context.Background(), "billing/nightly")
	fmt.Println("endpoints of two clusters:", errors.Is(err, client.ErrTwoClusters))
	var two *client.ClusterError
	if errors.As(err, &two) {
		fmt.Println("named:", two.Endpoint != two.WantFrom, two.Cluster != two.Want)
	}
	// Output:
	// endpoints of two clusters: true
	// named: true true
}

// An operator takes a lock away; its holder learns who did it.
func ExampleAdmin_RevokeLock() {
	addresses, stop := endpoints()
	defer stop()
	c, err := client.New(client.Config{Endpoints: addresses})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(context.Background())
	l, err := c.Acquire(context.Background(), "billing/nightly")
	if err != nil {
		log.Fatal(err)
	}

	a, err := client.NewAdmin(client.Config{Endpoints: addresses})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	n, err := a.RevokeLock(context.Background(), "billing/nightly", client.Revocation{By: "ada", Reason: "the host is gone"})
	fmt.Println("revoked", n, err)

	<-l.Context().Done()
	fmt.Println(context.Cause(l.Context()))
	// Output:
	// revoked 1 <nil>
	// lockstep: lock lost: revoked by ada: test
}
