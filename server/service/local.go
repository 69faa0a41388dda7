package service

import (
	"context"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// localBuffer is the buffer size of an in-process connection, in each direction.
const localBuffer = 64 << 10

// forwardedFor is where an in-process caller says on whose behalf it calls: grpc-gateway sets it to
// the address of the HTTP client.
const forwardedFor = "x-forwarded-for"

// DialLocal makes an in-process connection to this service, for the JSON API. It has no rate limit.
// The caller closes it. Calls wait until Run serves.
func (s *Service) DialLocal() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///local",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.local.DialContext(ctx) }))
}

// remote returns the address of the client of a call.
func remote(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	if p.Addr.Network() != "bufconn" {
		return p.Addr.String()
	}
	if all := metadata.ValueFromIncomingContext(ctx, forwardedFor); len(all) > 0 {
		last := all[len(all)-1]
		// Anything before it comes from the client itself.
		return last[strings.LastIndexByte(last, ' ')+1:]
	}
	return thisNode
}

// thisNode is the address of calls that this process makes itself.
const thisNode = "this node"
