// Package wirefake is a lock service in memory that speaks the wire protocol: one node, exclusive
// locks, no disk. It is for the client's own tests, which cannot import the server; other tests run
// the client against real clusters.
//
// A [Service] is a plain struct without a clock: a test decides when a lease or a wait has run out.
// [Node] serves one over gRPC.
package wirefake

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// A Delivery is an event for one stream.
type Delivery struct {
	Stream int
	Event  *pb.ServerEvent
}

// A Service is the state of the fake. It is not safe for concurrent use.
type Service struct {
	TTLms, Gracems uint64    // what sessions get; a TTL of 0 means the requested one
	Window         uint64    // how far claim numbers may be above the floor
	Held           *pb.Error // the answer to every Acquire; nil = none is held back
	Mute           bool      // hides the number of the current attachment, as older nodes do

	sessions map[string]*session
	locks    map[string]*lock
	token    uint64
	out      []Delivery
}

type session struct {
	id       string
	secret   string
	ttl      uint64
	stream   int // 0 = not attached
	attached uint64
	change   uint64
	floor    uint64
	seen     uint64
	claims   map[uint64]*claim // live, closing, and ended but not acknowledged
	ended    pb.Reason         // 0 = live
}

type claim struct {
	session *session
	seq     uint64
	spec    *pb.ClaimSpec
	status  *pb.ClaimStatus
	closing bool // revoked, and the holder has not confirmed it
	bySvc   bool // the service ended it
}

type lock struct {
	holder  *claim
	waiters []*claim
}

// New returns a service without sessions.
func New() *Service {
	return &Service{
		Gracems:  500,
		Window:   1024,
		sessions: make(map[string]*session),
		locks:    make(map[string]*lock),
	}
}

// Drain returns the deliveries since the last Drain.
func (s *Service) Drain() []Delivery {
	out := s.out
	s.out = nil
	return out
}

func (s *Service) say(stream int, e *pb.ServerEvent) {
	if stream != 0 {
		s.out = append(s.out, Delivery{stream, e})
	}
}

// Gone records that a stream has ended.
func (s *Service) Gone(stream int) {
	for _, e := range s.sessions {
		if e.stream == stream {
			e.stream = 0
		}
	}
}

// Handle handles one request. It returns the id of the session whose lease the request renewed, or
// "".
func (s *Service) Handle(stream int, r *pb.ClientRequest) (renewed string) {
	if b, ok := r.GetBody().(*pb.ClientRequest_Open); ok {
		return s.open(stream, r.GetTag(), b.Open)
	}
	e := s.sessions[r.GetSession()]
	if e == nil {
		s.refuse(stream, r, pb.Reason_REASON_SESSION_UNKNOWN, "")
		return ""
	}
	if e.ended != 0 {
		s.refuse(stream, r, e.ended, "")
		return ""
	}
	if b, ok := r.GetBody().(*pb.ClientRequest_Attach); ok {
		s.attach(e, stream, r, b.Attach)
		return ""
	}
	if e.stream != stream {
		s.refuse(stream, r, pb.Reason_REASON_INVALID_ARGUMENT, "session")
		return ""
	}
	switch b := r.GetBody().(type) {
	case *pb.ClientRequest_KeepAlive:
		s.answer(e, r, &pb.ServerEvent{Body: &pb.ServerEvent_Kept{Kept: &pb.StreamKept{Number: b.KeepAlive.GetNumber(), Change: e.change}}})
		return e.id
	case *pb.ClientRequest_Acquire:
		s.acquire(e, r, b.Acquire)
	case *pb.ClientRequest_Cancel:
		s.cancel(e, r, b.Cancel)
	case *pb.ClientRequest_Release:
		s.release(e, r, b.Release)
	case *pb.ClientRequest_Close:
		s.answer(e, r, &pb.ServerEvent{Body: &pb.ServerEvent_Closed{Closed: &pb.StreamClosed{}}})
		s.end(e, pb.Reason_REASON_SESSION_UNKNOWN)
	}
	return ""
}

func (s *Service) answer(e *session, r *pb.ClientRequest, ev *pb.ServerEvent) {
	ev.Tag, ev.Session = r.GetTag(), e.id
	s.say(e.stream, ev)
}

func (s *Service) refuse(stream int, r *pb.ClientRequest, reason pb.Reason, field string) {
	s.say(stream, &pb.ServerEvent{Tag: r.GetTag(), Session: r.GetSession(), Body: &pb.ServerEvent_Error{
		Error: &pb.Error{Reason: reason, Field: field, Message: "fake: " + reason.String()},
	}})
}

func (s *Service) answerClaim(e *session, r *pb.ClientRequest, c *claim) {
	s.answer(e, r, &pb.ServerEvent{Body: &pb.ServerEvent_Claim{Claim: proto.CloneOf(c.status)}})
}

func (s *Service) open(stream int, tag uint64, o *pb.StreamOpen) string {
	e := &session{
		id:       fmt.Sprintf("%032x", len(s.sessions)+1),
		secret:   fmt.Sprintf("secret %d", len(s.sessions)+1),
		ttl:      s.TTLms,
		stream:   stream,
		attached: 1,
		claims:   make(map[uint64]*claim),
	}
	if e.ttl == 0 {
		e.ttl = o.GetTtlMs()
	}
	s.sessions[e.id] = e
	s.say(stream, &pb.ServerEvent{Tag: tag, Session: e.id, Body: &pb.ServerEvent_Opened{Opened: &pb.StreamOpened{
		Session: e.id, Secret: []byte(e.secret), TtlMs: e.ttl, GraceMs: s.Gracems,
	}}})
	return e.id
}

func (s *Service) attach(e *session, stream int, r *pb.ClientRequest, a *pb.StreamAttach) {
	switch {
	case string(a.GetSecret()) != e.secret:
		s.refuse(stream, r, pb.Reason_REASON_SESSION_UNKNOWN, "")
		return
	case a.GetNumber() <= e.attached:
		s.say(stream, &pb.ServerEvent{Tag: r.GetTag(), Session: r.GetSession(), Body: &pb.ServerEvent_Error{
			Error: &pb.Error{Reason: pb.Reason_REASON_STALE_REQUEST, Field: "number", Attached: s.attachedNumber(e.attached)},
		}})
		return
	}
	if e.stream != 0 && e.stream != stream {
		s.say(e.stream, &pb.ServerEvent{Session: e.id, Body: &pb.ServerEvent_Ended{Ended: &pb.SessionEnded{
			Reason: pb.Reason_REASON_SESSION_UNKNOWN, Detail: "fake: attached elsewhere",
		}}})
	}
	e.stream, e.attached = stream, a.GetNumber()
	var missed []*claim
	for _, c := range e.claims {
		if c.status.GetChange() > a.GetSeen() {
			missed = append(missed, c)
		}
	}
	slices.SortFunc(missed, func(a, b *claim) int { return int(a.status.GetChange()) - int(b.status.GetChange()) })
	for _, c := range missed {
		s.pushChange(c)
	}
	s.answer(e, r, &pb.ServerEvent{Body: &pb.ServerEvent_Attached{Attached: &pb.StreamAttached{Change: e.change, TtlMs: e.ttl, GraceMs: s.Gracems}}})
}

func (s *Service) pushChange(c *claim) {
	s.say(c.session.stream, &pb.ServerEvent{Session: c.session.id, Body: &pb.ServerEvent_Change{Change: proto.CloneOf(c.status)}})
}

// changed gives the claim a new change number and notifies its session.
func (s *Service) changed(c *claim) {
	c.session.change++
	c.status.Change = c.session.change
	s.pushChange(c)
}

// acknowledge records the client's floor and seen, and forgets the ended claims that it no longer
// needs.
func (e *session) acknowledge(floor, seen uint64) {
	e.floor, e.seen = max(e.floor, floor), max(e.seen, seen)
	for seq, c := range e.claims {
		live := c.status.GetState() < pb.ClaimState_CLAIM_STATE_RELEASED || c.closing
		if !live && seq < e.floor && (!c.bySvc || c.status.GetChange() <= e.seen) {
			delete(e.claims, seq)
		}
	}
}

func (s *Service) attachedNumber(number uint64) uint64 {
	if s.Mute {
		return 0
	}
	return number
}

// Outrun makes the session of the name's holder look attached with this number.
func (s *Service) Outrun(name string, number uint64) { s.lock(name).holder.session.attached = number }
