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

// localBuffer is the room of a connection within the process, in each direction.
const localBuffer = 64 << 10

// forwardedFor is where who calls from within this process tells for whom: grpc-gateway sets it to
// the address of the HTTP client.
const forwardedFor = "x-forwarded-for"

// DialLocal makes a connection to this service from within the process, for the JSON API. It is not metered. The
// caller closes it. Calls wait until Run serves.
func (s *Service) DialLocal() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///local",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.local.DialContext(ctx) }))
}

// remote is the address of the client of a call.
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
		return last[strings.LastIndexByte(last, ' ')+1:] // before it stands what the client says of itself
	}
	return thisNode
}

// thisNode is the address of calls that this process makes for itself.
const thisNode = "this node"
