package service

import (
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

// A stream is one call of Session.
type stream struct {
	svc  *Service
	grpc pb.LockService_SessionServer
	id   lead.StreamID
	box  *outbox
	from lead.Origin
	// ended gets the one reason why the reader stopped; nil if the client closed its direction.
	ended chan error

	mu struct {
		sync.Mutex
		// gone: the end of the stream was reported to the node. Requests that arrive after that
		// would bind sessions to a stream that nobody reads.
		gone bool
	}
}

// Session serves one stream until it ends; see the package comment for how it may end.
func (s *Service) Session(g pb.LockService_SessionServer) error {
	if status := s.settle(g.Context()); status.Role != node.Leader {
		return protocol.Err(notLeader(status))
	}
	st := &stream{svc: s, grpc: g, box: newOutbox(s.cfg.Limits.QueuedReplies), from: s.origin(g.Context()), ended: make(chan error, 1)}
	st.box.account = s.accountOf(g.Context())
	st.id = s.cfg.Node.Connect(st.box.deliver)
	defer st.box.close()
	defer st.disconnect()
	s.readers.Go(func() { st.ended <- st.read() })
	err := st.write()
	if err != nil && !isDisconnect(err) {
		s.trouble.warn("stream closed", slog.String("client", remote(g.Context())), slog.Any("error", err))
	}
	return err
}

func (st *stream) disconnect() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.mu.gone = true
	st.svc.cfg.Node.Disconnect(st.id)
}

// offer hands requests to the node unless the stream is gone; the reader may be one frame late.
func (st *stream) offer(reqs []lead.Request) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.mu.gone {
		return node.ErrStopped
	}
	return st.svc.cfg.Node.Submit(reqs)
}

// write sends what the outbox gets until the stream has to end, and returns the reason.
func (st *stream) write() error {
	for {
		select {
		case <-st.box.wake:
			if err := st.flush(); err != nil {
				return err
			}
		case err := <-st.ended:
			return err
		case <-st.svc.stopping:
			if err := st.flush(); err != nil {
				return err
			}
			return st.svc.farewell()
		case <-st.grpc.Context().Done():
			return st.grpc.Context().Err()
		}
	}
}

// maxSentBytes is about the size of the largest frame that we send. Clients accept 4 MiB by
// default, and one event has at most 200 KiB: that of 16 holders with 16 names each.
const maxSentBytes = 512 << 10

// flush sends everything that waits, in as few frames as possible.
func (st *stream) flush() error {
	replies, events, full := st.box.take()
	frame, size := &pb.ServerFrame{Events: events}, 0
	for _, r := range replies {
		if refused, ok := r.Answer.(lead.Refused); ok && refused.Reason == lead.NotLeader {
			if err := st.send(frame); err != nil {
				return err
			}
			return st.svc.notLeader(st.grpc.Context())
		}
		e := protocol.ToClient(r)
		frame.Events = append(frame.Events, e)
		if size += proto.Size(e); size >= maxSentBytes {
			if err := st.send(frame); err != nil {
				return err
			}
			frame, size = &pb.ServerFrame{}, 0
		}
	}
	if full {
		return tooSlow()
	}
	return st.send(frame)
}

func (st *stream) send(f *pb.ServerFrame) error {
	if len(f.GetEvents()) == 0 {
		return nil
	}
	return st.grpc.Send(f)
}

// read reads frames until the client or the stream ends.
func (st *stream) read() error {
	rate := st.svc.meterOf(st.grpc.Context())
	for {
		frame, err := st.grpc.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		received := st.svc.cfg.Node.Now()
		if e := checkFrame(frame); e != nil {
			return protocol.Err(e)
		}
		pause := rate.take(time.Now(), len(frame.GetRequests()))
		if err := st.submit(st.translate(frame, received, pause > 0)); err != nil {
			return err
		}
		if st.box.isFull() {
			// The writer may be stuck until the client reads. The keepalives of a client that does
			// not hear us must not keep its sessions alive.
			st.disconnect()
			return tooSlow()
		}
		if !sleep(st.grpc.Context(), pause) { // also done when the handler has returned
			return nil
		}
	}
}

// checkFrame returns what is wrong with a frame as a whole. gRPC has checked its size.
func checkFrame(f *pb.ClientFrame) *pb.Error {
	if len(f.GetRequests()) > protocol.MaxFrameRequests {
		return protocol.TooManyRequests(len(f.GetRequests()))
	}
	return malformed(f)
}

// translate checks the requests of a frame and answers those that are refused at this point. Above
// the connection's rate, those are all requests that take something new; renewing and giving back
// is always let through.
func (st *stream) translate(f *pb.ClientFrame, received lead.Time, tooFast bool) []lead.Request {
	reqs := make([]lead.Request, 0, len(f.GetRequests()))
	for _, r := range f.GetRequests() {
		req, e := protocol.FromClient(st.id, received, r, st.svc.cfg.Rand)
		if e == nil && tooFast && takes(req) {
			e = overloaded()
		}
		if e != nil {
			st.refuse(r.GetTag(), r.GetSession(), e)
			continue
		}
		req.From = st.from
		reqs = append(reqs, req)
	}
	return reqs
}

// takes reports whether a request asks for something new, rather than to keep, give back or end
// what exists.
func takes(r lead.Request) bool {
	switch r.Body.(type) {
	case lead.KeepAlive, lead.Attach, lead.Release, lead.Cancel, lead.Close:
		return false
	}
	return true
}

func (st *stream) refuse(tag uint64, session string, e *pb.Error) {
	if len(session) > 2*len(lead.Request{}.Session) {
		session = "" // not an id: there is no need to repeat it
	}
	st.svc.cfg.Refused(e.GetReason())
	st.box.refuse(&pb.ServerEvent{Tag: tag, Session: session, Body: &pb.ServerEvent_Error{Error: e}})
}

// submit hands requests to the node. While the node has no room, those that take something are
// refused, and the others wait here, along with whatever the client sends next.
func (st *stream) submit(reqs []lead.Request) error {
	for wait := time.Millisecond; len(reqs) > 0; wait = min(2*wait, 50*time.Millisecond) {
		err := st.offer(reqs)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, node.ErrOverloaded):
			return protocol.Err(goingDown())
		}
		reqs = st.refuseTaking(reqs)
		if !sleep(st.grpc.Context(), wait) {
			return nil
		}
	}
	return nil
}

func (st *stream) refuseTaking(reqs []lead.Request) []lead.Request {
	kept := reqs[:0]
	for _, r := range reqs {
		if !takes(r) {
			kept = append(kept, r)
			continue
		}
		session := ""
		if r.Session != (lead.Request{}.Session) {
			session = r.Session.String()
		}
		st.refuse(r.Tag, session, overloaded())
	}
	return kept
}
