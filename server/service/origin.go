package service

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/lockstep-dev/lockstep/server/lead"
)

// clientKey is where a node that forwards a call says for whom: the client's address, with a proof
// that a node of the cluster wrote it.
const clientKey = "lockstep-client"

// maxSealed bounds what clientKey holds: an address and 64 digits.
const maxSealed = 256

// origin tells who made a call, for the shares of clients: the client of the node that passed it
// on, the HTTP client, or the other end of the connection.
func (s *Service) origin(ctx context.Context) lead.Origin {
	if from, ok := ctx.Value(sealedClient{}).(string); ok {
		return originOf(from)
	}
	return originOf(remote(ctx))
}

// sealedClient is the key of the client's address in the context of a call that another node has
// passed on.
type sealedClient struct{}

// noteClient checks once for each call whether another node has passed it on, and for which client.
// Only unary calls are passed on.
func (s *Service) noteClient(ctx context.Context, req any, _ *grpc.UnaryServerInfo, serve grpc.UnaryHandler) (any, error) {
	if all := metadata.ValueFromIncomingContext(ctx, clientKey); len(all) == 1 && passedOn(ctx) {
		if address, ok := s.unseal(all[0]); ok {
			ctx = context.WithValue(ctx, sealedClient{}, address)
		}
	}
	return serve(ctx, req)
}

func (s *Service) passedOnByNode(ctx context.Context) bool {
	return ctx.Value(sealedClient{}) != nil
}

// originOf returns the origin for a client's address, host:port or only a host.
func originOf(address string) lead.Origin {
	if address == "" || address == thisNode {
		return lead.Origin{}
	}
	h := fnv.New64a()
	h.Write([]byte(address))
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	return lead.Origin{Connection: h.Sum64(), Address: network(host)}
}

// network returns what counts as one address: for IPv6 the whole /64, since one machine can have
// any address in it.
func network(host string) string {
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.Is6() || ip.Is4In6() || ip.IsLoopback() {
		return host
	}
	prefix, _ := ip.WithZone("").Prefix(64) // never fails for IPv6
	return prefix.String()
}

// seal returns the value for clientKey. Without a cluster secret there is no way to prove it, and
// it is empty.
func (s *Service) seal(address string) string {
	for _, secret := range s.cfg.ClusterSecrets() {
		if len(secret) > 0 {
			return address + " " + hex.EncodeToString(proof(secret, address))
		}
	}
	return ""
}

// unseal returns the address, if a node of the cluster wrote it.
func (s *Service) unseal(sealed string) (address string, ok bool) {
	if len(sealed) > maxSealed {
		return "", false
	}
	address, text, _ := strings.Cut(sealed, " ")
	mac, err := hex.DecodeString(text)
	if err != nil || len(mac) != sha256.Size {
		return "", false
	}
	for _, secret := range s.cfg.ClusterSecrets() {
		if len(secret) > 0 && hmac.Equal(mac, proof(secret, address)) {
			return address, true
		}
	}
	return "", false
}

func proof(secret []byte, address string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("lockstep client of a call that is passed on\x00" + address))
	return h.Sum(nil)
}
