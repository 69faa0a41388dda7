package protocol

import (
	"encoding/base64"

	"google.golang.org/protobuf/proto"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// The answers of unary calls.

// ToOpenSession answers OpenSession.
func ToOpenSession(a lead.Opened) *pb.OpenSessionResponse {
	return &pb.OpenSessionResponse{Session: a.Session.String(), Secret: a.Secret[:], TtlMs: uint64(a.TTL), GraceMs: uint64(a.Grace)}
}

// ToKeepAlive answers KeepAlive.
func ToKeepAlive(a lead.Kept) *pb.KeepAliveResponse {
	return &pb.KeepAliveResponse{Number: a.Number, Change: a.Change, Changes: claims(a.Changes), TtlMs: uint64(a.TTL)}
}

// ToAcquire answers Acquire, which succeeds only with a grant: a caller that checks only for
// success must not take another state for a grant. For a claim that is over, ToAcquire returns the
// error. A queued claim has neither answer nor error: the call keeps waiting.
func ToAcquire(c command.ClaimStatus) (*pb.AcquireResponse, *pb.Error) {
	switch c.State {
	case command.Queued:
		return nil, nil
	case command.Granted:
		return &pb.AcquireResponse{Claim: ToClaim(c)}, nil
	}
	return nil, overError(c)
}

// overError returns why an Acquire ends without a grant.
func overError(c command.ClaimStatus) *pb.Error {
	e := &pb.Error{Field: "claim", Holders: holders(c.Blockers), Position: c.Position}
	switch c.State {
	case command.Busy:
		e.Reason, e.Message = pb.Reason_REASON_BUSY, "others hold the lock or are ahead in the queue"
	case command.WaitEnded:
		e.Reason, e.Message = pb.Reason_REASON_BUSY, "the wait timed out in the queue"
	case command.Cancelled:
		e.Reason, e.Message = pb.Reason_REASON_NOT_QUEUED, "the claim was cancelled"
	case command.Released:
		e.Reason, e.Message = pb.Reason_REASON_NOT_HELD, "the claim was already granted and released"
	case command.Revoked:
		e.Reason, e.Message = pb.Reason_REASON_REVOKED, "the claim was revoked"
		if c.By != "" {
			e.Message += " by " + c.By
		}
		if c.Reason != "" {
			e.Message += ": " + c.Reason
		}
	default: // Expired, the only other state
		e.Reason, e.Message = pb.Reason_REASON_SESSION_EXPIRED, "the claim ended with its session"
	}
	return e
}

// FromEnded returns the error of a call whose session ended while it waited.
func FromEnded(a lead.Ended) *pb.Error {
	row := refusedByMachine[a.Code]
	e := &pb.Error{Reason: row.reason, Field: row.field, Message: row.message}
	if a.By != "" {
		e.Message += ", by " + a.By
	}
	if a.Reason != "" {
		e.Message += ": " + a.Reason
	}
	return e
}

// maxListBytes bounds what one read call returns, so that a client that reads slowly occupies
// little of the node's memory.
const maxListBytes = 256 << 10

// ToGetLock answers GetLock. Holders are cut where the answer would exceed 256 KiB, and waiters
// where both together would; holder_count and waiter_count have the full numbers.
func ToGetLock(a lead.LockRead) *pb.GetLockResponse {
	l := toLock(a.Lock)
	cutHolders(l)
	l.Waiters = l.Waiters[:fitting(l.Waiters, maxListBytes-proto.Size(&pb.Lock{Holders: l.Holders}))]
	return &pb.GetLockResponse{Lock: l, NewestEvent: proto.Uint64(a.Newest)}
}

// cutHolders keeps one lock, which thousands may share, from exceeding what clients accept.
func cutHolders(l *pb.Lock) { l.Holders = l.Holders[:fitting(l.Holders, maxListBytes)] }

// fitting returns how many of the first messages have at most budget bytes in total; the first one
// is always counted.
func fitting[M proto.Message](ms []M, budget int) int {
	for i, m := range ms {
		if budget -= proto.Size(m); budget < 0 {
			return max(i, 1)
		}
	}
	return len(ms)
}

// ToListLocks answers ListLocks. A page ends early where it would exceed 256 KiB; a single lock
// that exceeds this is cut.
func ToListLocks(a lead.LocksRead) *pb.ListLocksResponse {
	out := &pb.ListLocksResponse{}
	n, budget := 0, maxListBytes
	for ; n < len(a.Locks); n++ {
		l := toLock(a.Locks[n])
		l.Waiters = l.Waiters[:min(1, len(l.Waiters))]
		cutHolders(l)
		if budget -= proto.Size(l); budget < 0 && n > 0 {
			break
		}
		out.Locks = append(out.Locks, l)
	}
	if n > 0 && (a.More || n < len(a.Locks)) {
		out.NextPageToken = toPageToken(a.Locks[n-1].Name)
	}
	return out
}

// A page token is the last name of the previous page, made opaque so that clients do not construct
// their own.
func toPageToken(name string) string { return base64.RawURLEncoding.EncodeToString([]byte(name)) }

func fromPageToken(token string) (string, *pb.Error) {
	if token == "" {
		return "", nil
	}
	name, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || lockstep.CheckName(string(name)) != nil {
		return "", invalid("page_token", "%s is not the next_page_token of a response", lockstep.Excerpt(token))
	}
	return string(name), nil
}

// ToListSessions answers ListSessions. A page ends early where it would exceed 256 KiB.
func ToListSessions(a lead.SessionsRead) *pb.ListSessionsResponse {
	sessions := make([]*pb.Session, len(a.Sessions))
	for i, s := range a.Sessions {
		sessions[i] = toSession(s)
	}
	n := fitting(sessions, maxListBytes)
	out := &pb.ListSessionsResponse{Sessions: sessions[:n]}
	if n > 0 && (a.More || n < len(sessions)) {
		out.NextPageToken = sessions[n-1].GetSession()
	}
	return out
}

func toSession(s lead.SessionState) *pb.Session {
	return &pb.Session{
		Session:        s.ID.String(),
		TtlMs:          uint64(s.TTL),
		ClientNumbered: s.ClientNumbered,
		Metadata:       labels(s.Metadata),
		Holding:        s.Holding,
		Waiting:        s.Waiting,
		Closing:        s.Closing,
		ExpiresInMs:    uint64(s.ExpiresIn),
	}
}

// ToHistory answers History. If the answer would exceed 256 KiB, it omits the oldest events and is
// not complete.
func ToHistory(a lead.HistoryRead) *pb.HistoryResponse {
	events := make([]*pb.Event, len(a.Events))
	budget, first := maxListBytes, 0
	for i := len(events) - 1; i >= 0; i-- {
		events[i] = ToEvent(a.Events[i])
		if budget -= proto.Size(events[i]); budget < 0 {
			first = i + 1
			break
		}
	}
	return &pb.HistoryResponse{Events: events[first:], Complete: a.Complete && first == 0}
}
