package protocol

import (
	"cmp"
	"io"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// The requests of unary calls. Each function checks the form of one and translates it; the caller
// sets Stream and Received.

// FromOpenSession opens a session that no stream is bound to. A ttl_ms of zero means the default.
func FromOpenSession(r *pb.OpenSessionRequest, rnd io.Reader) (lead.Request, *pb.Error) {
	ms := r.GetTtlMs()
	if ms == 0 {
		ms = millis(lockstep.DefaultTTL)
	}
	ttl, err := checkTTL(ms)
	if err != nil {
		return lead.Request{}, err
	}
	labels, err := metadata("metadata", r.GetMetadata())
	if err != nil {
		return lead.Request{}, err
	}
	open := lead.Open{TTL: ttl, ClientNumbered: r.GetClientNumbered(), Metadata: labels}
	fill(rnd, open.Random[:])
	fill(rnd, open.Secret[:])
	return lead.Request{Body: open}, nil
}

// FromKeepAlive renews a lease and asks for the claims that changed.
func FromKeepAlive(r *pb.KeepAliveRequest) (lead.Request, *pb.Error) {
	return ofSession(r, lead.KeepAlive{Number: r.GetNumber(), Seen: r.GetSeen(), Unary: true})
}

// FromCloseSession ends a session.
func FromCloseSession(r *pb.CloseSessionRequest) (lead.Request, *pb.Error) {
	return ofSession(r, lead.Close{})
}

// An owner is a request that proves its session with a secret.
type owner interface {
	GetSession() string
	GetSecret() []byte
}

func ofSession(r owner, body lead.Body) (lead.Request, *pb.Error) {
	id, err := session(r.GetSession())
	if err != nil {
		return lead.Request{}, err
	}
	s, err := secret(r.GetSecret())
	if err != nil {
		return lead.Request{}, err
	}
	return lead.Request{Session: id, Secret: &s, Body: body}, nil
}

// FromAcquire asks for a claim and follows it. A request without seq leaves the numbering to the
// service; only such a request may have a nonce.
func FromAcquire(r *pb.AcquireRequest) (lead.Request, *pb.Error) {
	req, err := ofSession(r, nil)
	if err != nil {
		return req, err
	}
	if r.GetNonce() != "" && r.GetSeq() != 0 {
		return req, invalid("nonce", "must be empty in a request with seq")
	}
	if err := checkText("nonce", r.GetNonce(), MaxNonceBytes); err != nil {
		return req, err
	}
	s, err := spec(r.GetSpec())
	if err != nil {
		return req, err
	}
	req.Body = lead.Acquire{Follow: true, Claim: command.Acquire{
		Session: req.Session, Seq: r.GetSeq(), Nonce: r.GetNonce(), Floor: r.GetFloor(), Seen: r.GetSeen(), Spec: s,
	}}
	return req, nil
}

// FromRelease ends a grant.
func FromRelease(r *pb.ReleaseRequest) (lead.Request, *pb.Error) {
	req, err := ofSession(r, nil)
	if err != nil {
		return req, err
	}
	req.Body, err = release(command.Release{Session: req.Session, Seq: r.GetSeq(), Token: command.Token(r.GetToken())})
	return req, err
}

// FromCancel ends a claim, queued or granted.
func FromCancel(r *pb.CancelRequest) (lead.Request, *pb.Error) {
	req, err := ofSession(r, nil)
	if err != nil {
		return req, err
	}
	req.Body, err = cancel(command.Cancel{Session: req.Session, Seq: r.GetSeq(), Floor: r.GetFloor(), Seen: r.GetSeen()})
	return req, err
}

// FromRevoke ends one grant, a session, or the grants of all holders of a name. by names the
// operator: r.By or, if that is empty, what the caller knows about the client.
func FromRevoke(r *pb.RevokeRequest, by string) (lead.Request, *pb.Error) {
	if err := checkText("by", by, MaxByBytes); err != nil {
		return lead.Request{}, err
	}
	if r.GetReason() == "" {
		return lead.Request{}, invalid("reason", "must not be empty: it is shown to the holder and in the history")
	}
	if err := checkText("reason", r.GetReason(), MaxReasonBytes); err != nil {
		return lead.Request{}, err
	}
	body := lead.Revoke{Command: command.Revoke{By: by, Reason: r.GetReason(), Now: r.GetNow()}}
	if err := revokeTarget(&body, r); err != nil {
		return lead.Request{}, err
	}
	if body.Last = command.Token(r.GetLastToken()); body.Last != 0 && body.Name == "" {
		return lead.Request{}, invalid("last_token", "must be 0 unless a name is revoked: a claim already identifies its token")
	}
	return lead.Request{Body: body}, nil
}

func revokeTarget(body *lead.Revoke, r *pb.RevokeRequest) (err *pb.Error) {
	claim := &body.Command.Claim
	switch t := r.GetTarget().(type) {
	case *pb.RevokeRequest_Claim:
		if t.Claim.GetSeq() == 0 {
			return noSeq()
		}
		if t.Claim.GetToken() == 0 {
			return invalid("token", "must not be 0: no grant has token 0")
		}
		claim.Seq, body.Command.Token = t.Claim.GetSeq(), command.Token(t.Claim.GetToken())
		claim.Session, err = session(t.Claim.GetSession())
		return err
	case *pb.RevokeRequest_Session:
		claim.Session, err = session(t.Session)
		return err
	case *pb.RevokeRequest_Name:
		body.Name = t.Name
		return checkName("name", t.Name)
	default:
		return invalid("target", "must be a claim, a session or a name")
	}
}

// FromGetLock reads one lock.
func FromGetLock(r *pb.GetLockRequest) (lead.Request, *pb.Error) {
	if err := checkName("name", r.GetName()); err != nil {
		return lead.Request{}, err
	}
	waiters, err := limit("waiter_limit", r.GetWaiterLimit(), MaxWaiters)
	if err != nil {
		return lead.Request{}, err
	}
	holders, err := limit("holder_limit", cmp.Or(r.GetHolderLimit(), MaxHolders), MaxHolders)
	return lead.Request{Body: lead.ReadLock{Name: r.GetName(), Holders: holders, Waiters: waiters}}, err
}

// FromListLocks reads one page of locks.
func FromListLocks(r *pb.ListLocksRequest) (lead.Request, *pb.Error) {
	if err := checkPrefix(r.GetPrefix()); err != nil {
		return lead.Request{}, err
	}
	size, err := limit("page_size", r.GetPageSize(), MaxPage)
	if err != nil {
		return lead.Request{}, err
	}
	after, err := fromPageToken(r.GetPageToken())
	return lead.Request{Body: lead.ReadLocks{Prefix: r.GetPrefix(), After: after, Limit: size}}, err
}

// FromListSessions reads one page of sessions. Its page token is the last id of the previous page.
func FromListSessions(r *pb.ListSessionsRequest) (lead.Request, *pb.Error) {
	size, err := limit("page_size", r.GetPageSize(), MaxPage)
	if err != nil {
		return lead.Request{}, err
	}
	read := lead.ReadSessions{Limit: size}
	if token := r.GetPageToken(); token != "" {
		after, err := command.ParseSessionID(token)
		if err != nil {
			return lead.Request{}, invalid("page_token", "%s is not the next_page_token of a response", lockstep.Excerpt(token))
		}
		read.After = after
	}
	return lead.Request{Body: read}, nil
}

// FromHistory reads the history of one lock.
func FromHistory(r *pb.HistoryRequest) (lead.Request, *pb.Error) {
	if err := checkName("name", r.GetName()); err != nil {
		return lead.Request{}, err
	}
	events, err := limit("limit", r.GetLimit(), MaxPage)
	return lead.Request{Body: lead.ReadHistory{Name: r.GetName(), Limit: events}}, err
}

// CheckWatch checks the form of a Watch request.
func CheckWatch(r *pb.WatchRequest) *pb.Error {
	switch {
	case r.GetFromOldest() && r.GetAfter() != 0:
		return invalid("after", "is %d, must be 0 with from_oldest", r.GetAfter())
	case r.GetCluster() != "" && !IsClusterID(r.GetCluster()):
		return invalid("cluster", "%s is not a cluster id: it must be 32 lowercase hexadecimal digits", lockstep.Excerpt(r.GetCluster()))
	}
	return checkPrefix(r.GetPrefix())
}

// EventsGone returns the error for a watch that resumes after an event, if the events up to oldest
// are no longer available.
func EventsGone(after, oldest uint64) *pb.Error {
	e := broken(pb.Reason_REASON_OUT_OF_RANGE, "after",
		"some events after %d are no longer available: the lowest number to resume after is %d", after, oldest)
	e.Oldest = oldest
	return e
}

// AnotherHistory returns the error for a watch that resumes after an event of another history: that
// of the given cluster or, if cluster is empty, an earlier one of this cluster. The events of the
// current history begin after oldest and end with newest.
func AnotherHistory(cluster string, after, oldest, newest uint64) *pb.Error {
	field, of := "after", "an earlier history"
	if cluster != "" {
		field, of = "cluster", "cluster "+cluster
	}
	e := broken(pb.Reason_REASON_OUT_OF_RANGE, field,
		"the history has changed: event %d belongs to %s. In this history, watch after %d for all events still available, or after %d for new ones",
		after, of, oldest, newest)
	e.Oldest, e.Newest = oldest, newest
	return e
}
