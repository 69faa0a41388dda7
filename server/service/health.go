package service

import (
	"context"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/node"
)

// healthEvery is how often the node's state is copied to the health service.
const healthEvery = 200 * time.Millisecond

// Ready reports whether a node can serve its clients or redirect them to the leader: it knows a
// leader and, if it is the leader itself, serves, which requires a quorum.
func Ready(st node.Status) bool {
	if st.Role == node.Leader {
		return st.Serving
	}
	return st.Role == node.Follower && st.Leader != 0
}

// followHealth copies the node's state to the health service, and to callers waiting for a leader,
// until ctx is done or the server has ended.
func (s *Service) followHealth(ctx context.Context, served <-chan error) error {
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for was := false; ; {
		if is := Ready(s.cfg.Node.Status()); is != was {
			s.setHealth(is)
			s.log.Info("health", "serving", is)
			was = is
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return err
		case <-s.herald.hurry:
			s.watchFor(ctx)
		case <-tick.C:
		}
	}
}

func (s *Service) setHealth(serving bool) {
	state := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if serving {
		state = grpc_health_v1.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", state)
	s.health.SetServingStatus(pb.LockService_ServiceDesc.ServiceName, state)
}
