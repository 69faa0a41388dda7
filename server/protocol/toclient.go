package protocol

import (
	"fmt"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// ToClient returns the event that carries a reply on a stream. It panics on an answer that only
// unary calls get: requests with such answers never come from a stream.
func ToClient(r lead.Reply) *pb.ServerEvent {
	e := &pb.ServerEvent{Tag: r.Tag}
	if r.Session != (command.SessionID{}) {
		e.Session = r.Session.String()
	}
	switch a := r.Answer.(type) {
	case lead.Opened:
		e.Session = a.Session.String()
		e.Body = &pb.ServerEvent_Opened{Opened: &pb.StreamOpened{
			Session: e.Session, Secret: a.Secret[:], TtlMs: uint64(a.TTL), GraceMs: uint64(a.Grace),
		}}
	case lead.Attached:
		e.Body = &pb.ServerEvent_Attached{Attached: &pb.StreamAttached{
			Change: a.Change, TtlMs: uint64(a.TTL), GraceMs: uint64(a.Grace),
		}}
	case lead.Kept:
		e.Body = &pb.ServerEvent_Kept{Kept: &pb.StreamKept{Number: a.Number, Change: a.Change}}
	case lead.Claimed:
		e.Body = &pb.ServerEvent_Claim{Claim: ToClaim(a.Claim)}
	case lead.Closed:
		e.Body = &pb.ServerEvent_Closed{Closed: &pb.StreamClosed{}}
	case lead.Changed:
		e.Body = &pb.ServerEvent_Change{Change: ToClaim(a.Claim)}
	case lead.Ended:
		e.Body = &pb.ServerEvent_Ended{Ended: ended(a)}
	case lead.Refused:
		e.Body = &pb.ServerEvent_Error{Error: FromRefused(a)}
	default:
		panic(fmt.Sprintf("protocol: %T on stream %d", r.Answer, r.Stream))
	}
	return e
}

func ended(a lead.Ended) *pb.SessionEnded {
	return &pb.SessionEnded{Reason: refusedByMachine[a.Code].reason, By: a.By, Detail: a.Reason}
}

// ToClaim returns the state of a claim for its owner.
func ToClaim(c command.ClaimStatus) *pb.ClaimStatus {
	return &pb.ClaimStatus{
		Seq:      c.Seq,
		State:    pb.ClaimState(c.State),
		Token:    uint64(c.Token),
		Position: c.Position,
		Change:   c.Change,
		By:       c.By,
		Reason:   c.Reason,
		Holders:  holders(c.Blockers),
	}
}

func claims(cs []command.ClaimStatus) []*pb.ClaimStatus {
	out := make([]*pb.ClaimStatus, len(cs))
	for i, c := range cs {
		out[i] = ToClaim(c)
	}
	return out
}

func holders(hs []command.Holder) []*pb.Holder {
	if len(hs) == 0 {
		return nil
	}
	out := make([]*pb.Holder, len(hs))
	for i, h := range hs {
		out[i] = toHolder(h)
	}
	return out
}

func toHolder(h command.Holder) *pb.Holder {
	return &pb.Holder{
		Session:     h.Claim.Session.String(),
		Seq:         h.Claim.Seq,
		Token:       uint64(h.Token),
		SinceUnixMs: uint64(h.Since),
		Mode:        pb.Mode(h.Mode),
		Weight:      h.Weight,
		Metadata:    labels(h.Metadata),
		Closing:     h.Closing,
		Names:       h.Names,
	}
}

func labels(ls []command.Label) map[string]string {
	if len(ls) == 0 {
		return nil
	}
	out := make(map[string]string, len(ls))
	for _, l := range ls {
		out[l.Key] = l.Value
	}
	return out
}

func toLock(l command.Lock) *pb.Lock {
	return &pb.Lock{
		Name:        l.Name,
		Mode:        pb.Mode(l.Mode),
		Capacity:    l.Capacity,
		Holders:     holders(l.Holders),
		Waiters:     holders(l.Waiters),
		WaiterCount: uint64(l.Waiting),
		NextToken:   uint64(l.NextToken),
		HolderCount: uint64(l.Holding),
		PermitsHeld: l.Used,
	}
}

// ToEvent converts an event of the history.
func ToEvent(e command.Event) *pb.Event {
	return &pb.Event{
		Number:   e.Number,
		Kind:     pb.EventKind(e.Kind),
		Name:     e.Name,
		Session:  e.Claim.Session.String(),
		Seq:      e.Claim.Seq,
		Token:    uint64(e.Token),
		Mode:     pb.Mode(e.Mode),
		UnixMs:   uint64(e.Wall),
		Metadata: labels(e.Metadata),
		By:       e.By,
		Reason:   e.Reason,
	}
}
