package service

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/lockstep-dev/lockstep/server/protocol"
)

// Every call of the API passes through pinUnary or pinStream: its answer or error says which
// cluster this node belongs to, and a call that is meant for another cluster is refused before
// anything is done. A node that does not know its cluster yet reports none and refuses nothing.

func (s *Service) pinUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, serve grpc.UnaryHandler) (any, error) {
	if err := s.pin(ctx, info.FullMethod, func(md metadata.MD) error { return grpc.SetHeader(ctx, md) }); err != nil {
		return nil, err
	}
	return serve(ctx, req)
}

func (s *Service) pinStream(srv any, g grpc.ServerStream, info *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
	if err := s.pin(g.Context(), info.FullMethod, g.SetHeader); err != nil {
		return err
	}
	return serve(srv, g)
}

func (s *Service) pin(ctx context.Context, method string, tell func(metadata.MD) error) error {
	own := s.cfg.Node.Status().ClusterID
	if own == "" || !strings.HasPrefix(method, "/lockstep.v1.") {
		return nil
	}
	if err := tell(metadata.Pairs(protocol.ClusterKey, own)); err != nil {
		return err
	}
	for _, wanted := range metadata.ValueFromIncomingContext(ctx, protocol.ClusterKey) {
		if wanted != own {
			return s.refuse(protocol.WrongCluster(wanted, own))
		}
	}
	return nil
}
