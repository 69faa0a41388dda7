package protocol

import (
	"io"

	"google.golang.org/protobuf/proto"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// FromClient checks one request of a stream and translates it. received is when its bytes were
// read. rnd is the source of the secrets of new sessions.
//
// The names and metadata values of a claim share memory with r, which must not be modified
// afterwards.
func FromClient(stream lead.StreamID, received lead.Time, r *pb.ClientRequest, rnd io.Reader) (lead.Request, *pb.Error) {
	out := lead.Request{Stream: stream, Tag: r.GetTag(), Received: received}
	if err := CheckSize(r); err != nil {
		return out, err
	}
	if open, ok := r.GetBody().(*pb.ClientRequest_Open); ok {
		if r.GetSession() != "" {
			return out, invalid("session", "must be empty when opening a session")
		}
		var err *pb.Error
		out.Body, err = streamOpen(open.Open, rnd)
		return out, err
	}
	var err *pb.Error
	if out.Session, err = session(r.GetSession()); err != nil {
		return out, err
	}
	out.Body, err = streamBody(out.Session, r)
	return out, err
}

// CheckSize bounds the encoded size of one request, of a stream or of a unary call.
func CheckSize(m proto.Message) *pb.Error {
	if n := proto.Size(m); n > MaxRequestBytes {
		return broken(pb.Reason_REASON_QUOTA_EXCEEDED, "request", "is %d bytes long, the limit is %d", n, MaxRequestBytes)
	}
	return nil
}

// TooManyRequests returns the error for a frame of n requests, more than MaxFrameRequests.
func TooManyRequests(n int) *pb.Error {
	return broken(pb.Reason_REASON_QUOTA_EXCEEDED, "requests", "a frame has %d, the limit is %d", n, MaxFrameRequests)
}

func streamOpen(o *pb.StreamOpen, rnd io.Reader) (lead.Body, *pb.Error) {
	ttl, err := checkTTL(o.GetTtlMs())
	if err != nil {
		return nil, err
	}
	labels, err := metadata("metadata", o.GetMetadata())
	if err != nil {
		return nil, err
	}
	open := lead.Open{TTL: ttl, ClientNumbered: true, Metadata: labels, Attach: true}
	fill(rnd, open.Random[:])
	fill(rnd, open.Secret[:])
	return open, nil
}

// streamBody translates everything except an Open.
func streamBody(id command.SessionID, r *pb.ClientRequest) (lead.Body, *pb.Error) {
	switch b := r.GetBody().(type) {
	case *pb.ClientRequest_Attach:
		return streamAttach(b.Attach)
	case *pb.ClientRequest_KeepAlive:
		return lead.KeepAlive{Number: b.KeepAlive.GetNumber()}, nil
	case *pb.ClientRequest_Acquire:
		return streamAcquire(id, b.Acquire)
	case *pb.ClientRequest_Cancel:
		c := b.Cancel
		return cancel(command.Cancel{Session: id, Seq: c.GetSeq(), Floor: c.GetFloor(), Seen: c.GetSeen()})
	case *pb.ClientRequest_Release:
		return release(command.Release{Session: id, Seq: b.Release.GetSeq(), Token: command.Token(b.Release.GetToken())})
	case *pb.ClientRequest_Close:
		return lead.Close{}, nil
	default:
		return nil, broken(pb.Reason_REASON_UNSUPPORTED, "body", "is missing, or of a kind that this version does not support")
	}
}

func streamAttach(a *pb.StreamAttach) (lead.Body, *pb.Error) {
	s, err := secret(a.GetSecret())
	if err != nil {
		return nil, err
	}
	if a.GetNumber() == 0 {
		return nil, invalid("number", "must not be 0")
	}
	return lead.Attach{Secret: s, Number: a.GetNumber(), Seen: a.GetSeen()}, nil
}

// streamAcquire takes the claim's number from the client: sessions on streams are client-numbered.
func streamAcquire(id command.SessionID, a *pb.StreamAcquire) (lead.Body, *pb.Error) {
	if a.GetSeq() == 0 {
		return nil, noSeq()
	}
	s, err := spec(a.GetSpec())
	if err != nil {
		return nil, err
	}
	return lead.Acquire{Claim: command.Acquire{
		Session: id, Seq: a.GetSeq(), Floor: a.GetFloor(), Seen: a.GetSeen(), Spec: s,
	}}, nil
}

func noSeq() *pb.Error { return invalid("seq", "must not be 0") }

func cancel(c command.Cancel) (lead.Body, *pb.Error) {
	if c.Seq == 0 {
		return nil, noSeq()
	}
	return lead.Cancel{Claim: c}, nil
}

func release(r command.Release) (lead.Body, *pb.Error) {
	if r.Seq == 0 {
		return nil, noSeq()
	}
	if r.Token == 0 {
		return nil, invalid("token", "must not be 0: no grant has token 0")
	}
	return lead.Release{Claim: r}, nil
}
