package faulttest_test

import (
	"context"
	"net"
	"slices"

	"google.golang.org/grpc"
)

// proxied makes a client reach each node only through its proxy, even when a node names the leader
// by its own address.
func proxied(endpoints, behind []string) []grpc.DialOption {
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		if i := slices.Index(endpoints, address); i >= 0 {
			address = behind[i]
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address)
	}
	return []grpc.DialOption{grpc.WithContextDialer(dial)}
}
