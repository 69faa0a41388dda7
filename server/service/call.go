package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/status"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

// maxCallReplies bounds what waits for one unary call: its answer and the changes of one claim, at
// most two.
const maxCallReplies = 64

// A call is one unary call as the replica sees it: a stream of one request.
type call struct {
	svc  *Service
	id   lead.StreamID
	box  *outbox
	rest []lead.Reply // taken from the box, not processed yet
}

// start submits the one request of a call; the caller ends the call with close. The parameters are
// the results of a form check, so that handlers stay short.
func (s *Service) start(ctx context.Context, req lead.Request, e *pb.Error) (*call, error) {
	if e != nil {
		return nil, s.refuse(e)
	}
	if err := s.admit(ctx, req); err != nil {
		return nil, err
	}
	req.From = s.origin(ctx)
	c := &call{svc: s, box: newOutbox(maxCallReplies)}
	c.id = s.cfg.Node.Connect(c.box.deliver)
	if err := c.submit(req); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// admit enforces a connection's rate limit.
func (s *Service) admit(ctx context.Context, req lead.Request) error {
	pause := s.meterOf(ctx).take(time.Now(), 1)
	switch {
	case pause > 0 && takes(req):
		return s.refuse(overloaded())
	case !sleep(ctx, pause):
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

func (c *call) submit(req lead.Request) error {
	req.Stream, req.Received = c.id, c.svc.cfg.Node.Now()
	switch err := c.svc.cfg.Node.Submit([]lead.Request{req}); {
	case err == nil:
		return nil
	case errors.Is(err, node.ErrOverloaded):
		return c.svc.refuse(overloaded())
	default:
		return protocol.Err(goingDown())
	}
}

// close ends the replica's stream; a queued claim of the stream is cancelled.
func (c *call) close() { c.svc.cfg.Node.Disconnect(c.id) }

// next waits for the next answer. Refusals are returned as errors.
func (c *call) next(ctx context.Context) (lead.Answer, error) {
	for len(c.rest) == 0 {
		select {
		case <-c.box.wake:
			c.rest, _, _ = c.box.take()
		case <-c.svc.stopping:
			return nil, c.svc.farewellUnder()
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	answer := c.rest[0].Answer
	c.rest = c.rest[1:]
	if r, ok := answer.(lead.Refused); ok {
		return nil, c.svc.refused(ctx, r)
	}
	return answer, nil
}

// refused returns the error of a unary call that the replica refused.
func (s *Service) refused(ctx context.Context, r lead.Refused) error {
	if r.Reason == lead.NotLeader {
		e := notLeader(s.settle(ctx))
		e.Uncertain = r.Uncertain
		return protocol.Err(e)
	}
	return protocol.Err(protocol.FromRefused(r))
}

// ask makes a call that has one answer, of type A.
func ask[A lead.Answer](ctx context.Context, s *Service, req lead.Request, e *pb.Error) (A, error) {
	var none A
	c, err := s.start(ctx, req, e)
	if err != nil {
		return none, err
	}
	defer c.close()
	answer, err := c.next(ctx)
	if err != nil {
		return none, err
	}
	a, ok := answer.(A)
	if !ok {
		panic(fmt.Sprintf("service: %T was answered %T, want %T", req.Body, answer, none))
	}
	return a, nil
}
