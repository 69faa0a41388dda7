package protocol_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/unicode/norm"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

func expect(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

var someSpec = &pb.ClaimSpec{Names: []string{"a"}}

func TestABadUnaryRequestIsRefused(t *testing.T) {
	revoke := func(r *pb.RevokeRequest) func() (lead.Request, *pb.Error) {
		return func() (lead.Request, *pb.Error) { return protocol.FromRevoke(r, r.GetBy()) }
	}
	for _, c := range []struct {
		name   string
		from   func() (lead.Request, *pb.Error)
		reason pb.Reason
		field  string
	}{
		{"a TTL below the limit", func() (lead.Request, *pb.Error) {
			return protocol.FromOpenSession(&pb.OpenSessionRequest{TtlMs: 999}, &random{})
		}, pb.Reason_REASON_OUT_OF_RANGE, "ttl_ms"},
		{"metadata with a bad key", func() (lead.Request, *pb.Error) {
			return protocol.FromOpenSession(&pb.OpenSessionRequest{Metadata: map[string]string{"\n": ""}}, &random{})
		}, pb.Reason_REASON_INVALID_METADATA, "metadata"},
		{"a keepalive without a secret", func() (lead.Request, *pb.Error) {
			return protocol.FromKeepAlive(&pb.KeepAliveRequest{Session: someID})
		}, pb.Reason_REASON_SESSION_UNKNOWN, "session"},
		{"a close without a session", func() (lead.Request, *pb.Error) {
			return protocol.FromCloseSession(&pb.CloseSessionRequest{Secret: someSecret})
		}, pb.Reason_REASON_SESSION_UNKNOWN, "session"},
		{"seq and nonce", func() (lead.Request, *pb.Error) {
			return protocol.FromAcquire(&pb.AcquireRequest{Session: someID, Secret: someSecret, Seq: 1, Nonce: "n", Spec: someSpec})
		}, pb.Reason_REASON_INVALID_ARGUMENT, "nonce"},
		{"a nonce of 65 bytes", func() (lead.Request, *pb.Error) {
			return protocol.FromAcquire(&pb.AcquireRequest{Session: someID, Secret: someSecret, Nonce: strings.Repeat("n", 65), Spec: someSpec})
		}, pb.Reason_REASON_INVALID_ARGUMENT, "nonce"},
		{"a claim without names", func() (lead.Request, *pb.Error) {
			return protocol.FromAcquire(&pb.AcquireRequest{Session: someID, Secret: someSecret})
		}, pb.Reason_REASON_INVALID_ARGUMENT, "spec.names"},
		{"a release without a token", func() (lead.Request, *pb.Error) {
			return protocol.FromRelease(&pb.ReleaseRequest{Session: someID, Secret: someSecret, Seq: 1})
		}, pb.Reason_REASON_INVALID_ARGUMENT, "token"},
		{"a cancel without a number", func() (lead.Request, *pb.Error) {
			return protocol.FromCancel(&pb.CancelRequest{Session: someID, Secret: someSecret})
		}, pb.Reason_REASON_INVALID_ARGUMENT, "seq"},
		{"a revocation without a reason", revoke(&pb.RevokeRequest{Target: &pb.RevokeRequest_Name{Name: "a"}}), pb.Reason_REASON_INVALID_ARGUMENT, "reason"},
		{"a revocation of nothing", revoke(&pb.RevokeRequest{Reason: "r"}), pb.Reason_REASON_INVALID_ARGUMENT, "target"},
		{"a revocation of a bad name", revoke(&pb.RevokeRequest{Reason: "r", Target: &pb.RevokeRequest_Name{Name: "a//b"}}), pb.Reason_REASON_INVALID_NAME, "name"},
		{"a last token for a session", revoke(&pb.RevokeRequest{Reason: "r", LastToken: 7, Target: &pb.RevokeRequest_Session{Session: someID}}), pb.Reason_REASON_INVALID_ARGUMENT, "last_token"},
		{"a revocation of token zero", revoke(&pb.RevokeRequest{Reason: "r", Target: &pb.RevokeRequest_Claim{Claim: &pb.RevokeClaim{Session: someID, Seq: 1}}}), pb.Reason_REASON_INVALID_ARGUMENT, "token"},
		{"a revocation of a malformed session", revoke(&pb.RevokeRequest{Reason: "r", Target: &pb.RevokeRequest_Session{Session: "x"}}), pb.Reason_REASON_SESSION_UNKNOWN, "session"},
		{"a reason of 513 bytes", revoke(&pb.RevokeRequest{Reason: strings.Repeat("r", 513)}), pb.Reason_REASON_INVALID_ARGUMENT, "reason"},
		{"an escape sequence in a reason", revoke(&pb.RevokeRequest{Reason: "\x1b[2J"}), pb.Reason_REASON_INVALID_ARGUMENT, "reason"},
		{"a newline in an operator's name", revoke(&pb.RevokeRequest{Reason: "r", By: "a\nb"}), pb.Reason_REASON_INVALID_ARGUMENT, "by"},
		{"a nonce that is not UTF-8", func() (lead.Request, *pb.Error) {
			return protocol.FromAcquire(&pb.AcquireRequest{Session: someID, Secret: someSecret, Nonce: "\xff", Spec: someSpec})
		}, pb.Reason_REASON_INVALID_ARGUMENT, "nonce"},
		{"an operator of 129 bytes", revoke(&pb.RevokeRequest{Reason: "r", By: strings.Repeat("r", 129)}), pb.Reason_REASON_INVALID_ARGUMENT, "by"},
		{"a read without a name", func() (lead.Request, *pb.Error) { return protocol.FromGetLock(&pb.GetLockRequest{}) }, pb.Reason_REASON_INVALID_NAME, "name"},
		{"too many waiters", func() (lead.Request, *pb.Error) {
			return protocol.FromGetLock(&pb.GetLockRequest{Name: "a", WaiterLimit: 16_385})
		}, pb.Reason_REASON_OUT_OF_RANGE, "waiter_limit"},
		{"a page of 1001", func() (lead.Request, *pb.Error) {
			return protocol.FromListLocks(&pb.ListLocksRequest{PageSize: 1001})
		}, pb.Reason_REASON_OUT_OF_RANGE, "page_size"},
		{"a prefix of 513 bytes", func() (lead.Request, *pb.Error) {
			return protocol.FromListLocks(&pb.ListLocksRequest{Prefix: strings.Repeat("p", 513)})
		}, pb.Reason_REASON_INVALID_ARGUMENT, "prefix"},
		{"a prefix that is not in NFC", func() (lead.Request, *pb.Error) {
			return protocol.FromListLocks(&pb.ListLocksRequest{Prefix: "cafe\u0301"})
		}, pb.Reason_REASON_INVALID_ARGUMENT, "prefix"},
		{"a watch of a prefix that is not in NFC", func() (lead.Request, *pb.Error) {
			return lead.Request{}, protocol.CheckWatch(&pb.WatchRequest{Prefix: "cafe\u0301"})
		}, pb.Reason_REASON_INVALID_ARGUMENT, "prefix"},
		{"a made-up page token", func() (lead.Request, *pb.Error) {
			return protocol.FromListLocks(&pb.ListLocksRequest{PageToken: "!"})
		}, pb.Reason_REASON_INVALID_ARGUMENT, "page_token"},
		{"a history without a name", func() (lead.Request, *pb.Error) { return protocol.FromHistory(&pb.HistoryRequest{}) }, pb.Reason_REASON_INVALID_NAME, "name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, e := c.from()
			if e.GetReason() != c.reason || e.GetField() != c.field {
				t.Errorf("got %v of %q (%s), want %v of %q", e.GetReason(), e.GetField(), e.GetMessage(), c.reason, c.field)
			}
			checkEcho(t, e)
		})
	}
}

func TestEveryBeginningOfANameIsAPrefix(t *testing.T) {
	name := norm.NFC.String("cafe\u0301/\u1100\u1161\u11a8/q\u0307\u0323") // the last letter has no precomposed form
	for i := range name + " " {
		if _, e := protocol.FromListLocks(&pb.ListLocksRequest{Prefix: name[:i]}); e != nil {
			t.Errorf("%+q: %s", name[:i], e.GetMessage())
		}
	}
	_, e := protocol.FromListLocks(&pb.ListLocksRequest{Prefix: "cafe\u0301"})
	if !strings.Contains(e.GetMessage(), "NFC") {
		t.Errorf("a prefix that is not in NFC is refused with %q", e.GetMessage())
	}
}

func TestAMalformedSessionLooksLikeAnUnknownOne(t *testing.T) {
	unknown := protocol.FromRefused(lead.Refused{Code: command.SessionUnknown})
	_, malformed := protocol.FromKeepAlive(&pb.KeepAliveRequest{Session: "?", Secret: someSecret})
	_, noSecret := protocol.FromKeepAlive(&pb.KeepAliveRequest{Session: someID})
	for _, e := range []*pb.Error{malformed, noSecret} {
		if e.String() != unknown.String() {
			t.Errorf("got %v, want %v", e, unknown)
		}
	}
}

func TestUnaryRequestsAreTranslated(t *testing.T) {
	id, _ := command.ParseSessionID(someID)
	secret := command.Secret(someSecret)
	own := func(b lead.Body) lead.Request { return lead.Request{Session: id, Secret: &secret, Body: b} }
	type translation struct {
		name string
		got  func() (lead.Request, *pb.Error)
		want lead.Request
	}
	for _, c := range []translation{
		{"keepalive", func() (lead.Request, *pb.Error) {
			return protocol.FromKeepAlive(&pb.KeepAliveRequest{Session: someID, Secret: someSecret, Number: 1, Seen: 2})
		}, own(lead.KeepAlive{Number: 1, Seen: 2, Unary: true})},
		{"close", func() (lead.Request, *pb.Error) {
			return protocol.FromCloseSession(&pb.CloseSessionRequest{Session: someID, Secret: someSecret})
		}, own(lead.Close{})},
		{"acquire", func() (lead.Request, *pb.Error) {
			return protocol.FromAcquire(&pb.AcquireRequest{Session: someID, Secret: someSecret, Nonce: "n", Spec: someSpec})
		}, own(lead.Acquire{Follow: true, Claim: command.Acquire{Session: id, Nonce: "n", Spec: command.Spec{Names: []string{"a"}}}})},
		{"release", func() (lead.Request, *pb.Error) {
			return protocol.FromRelease(&pb.ReleaseRequest{Session: someID, Secret: someSecret, Seq: 1, Token: 2})
		}, own(lead.Release{Claim: command.Release{Session: id, Seq: 1, Token: 2}})},
		{"cancel", func() (lead.Request, *pb.Error) {
			return protocol.FromCancel(&pb.CancelRequest{Session: someID, Secret: someSecret, Seq: 1, Floor: 2, Seen: 3})
		}, own(lead.Cancel{Claim: command.Cancel{Session: id, Seq: 1, Floor: 2, Seen: 3}})},
		{"revoke a claim", func() (lead.Request, *pb.Error) {
			return protocol.FromRevoke(&pb.RevokeRequest{Reason: "r", Now: true, Target: &pb.RevokeRequest_Claim{Claim: &pb.RevokeClaim{Session: someID, Seq: 1, Token: 2}}}, "b")
		}, lead.Request{Body: lead.Revoke{Command: command.Revoke{Claim: command.ClaimID{Session: id, Seq: 1}, Token: 2, By: "b", Reason: "r", Now: true}}}},
		{"revoke a session", func() (lead.Request, *pb.Error) {
			return protocol.FromRevoke(&pb.RevokeRequest{Reason: "r", Target: &pb.RevokeRequest_Session{Session: someID}}, "b")
		}, lead.Request{Body: lead.Revoke{Command: command.Revoke{Claim: command.ClaimID{Session: id}, By: "b", Reason: "r"}}}},
		{"revoke a name", func() (lead.Request, *pb.Error) {
			return protocol.FromRevoke(&pb.RevokeRequest{Reason: "r", Target: &pb.RevokeRequest_Name{Name: "a"}}, "b")
		}, lead.Request{Body: lead.Revoke{Name: "a", Command: command.Revoke{By: "b", Reason: "r"}}}},
		{"revoke a name up to a token", func() (lead.Request, *pb.Error) {
			return protocol.FromRevoke(&pb.RevokeRequest{Reason: "r", LastToken: 7, Target: &pb.RevokeRequest_Name{Name: "a"}}, "b")
		}, lead.Request{Body: lead.Revoke{Name: "a", Last: 7, Command: command.Revoke{By: "b", Reason: "r"}}}},
		{"read a lock", func() (lead.Request, *pb.Error) { return protocol.FromGetLock(&pb.GetLockRequest{Name: "a"}) },
			lead.Request{Body: lead.ReadLock{Name: "a", Holders: 1000, Waiters: 100}}},
		{"read a page", func() (lead.Request, *pb.Error) {
			return protocol.FromListLocks(&pb.ListLocksRequest{Prefix: "a/", PageSize: 1000})
		}, lead.Request{Body: lead.ReadLocks{Prefix: "a/", Limit: 1000}}},
		{"read a history", func() (lead.Request, *pb.Error) {
			return protocol.FromHistory(&pb.HistoryRequest{Name: "a", Limit: 3})
		}, lead.Request{Body: lead.ReadHistory{Name: "a", Limit: 3}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, e := c.got()
			if e != nil {
				t.Fatal(e)
			}
			expect(t, got, c.want)
		})
	}
}

func TestAnOpenSessionWithoutTTLGetsTheDefault(t *testing.T) {
	got, e := protocol.FromOpenSession(&pb.OpenSessionRequest{}, &random{})
	if e != nil {
		t.Fatal(e)
	}
	if open := got.Body.(lead.Open); open.TTL != 10_000 || open.ClientNumbered || open.Attach {
		t.Errorf("got %+v, want a service-numbered session of 10 s without a stream", open)
	}
}
