package protocol_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

func TestEveryReasonHasACode(t *testing.T) {
	for n, name := range pb.Reason_name {
		if r := pb.Reason(n); r != pb.Reason_REASON_UNSPECIFIED && protocol.CodeOf(r) == codes.Unknown {
			t.Errorf("%s has no gRPC code", name)
		}
	}
	if got := protocol.CodeOf(pb.Reason(-1)); got != codes.Unknown {
		t.Errorf("an unknown reason has code %v", got)
	}
}

func TestEveryRefusalIsExplained(t *testing.T) {
	var all []lead.Refused
	for c := command.SessionUnknown; c <= command.Void; c++ {
		all = append(all, lead.Refused{Code: c})
	}
	for r := lead.NotLeader; r <= lead.OldAttachment; r++ {
		all = append(all, lead.Refused{Reason: r})
	}
	for _, r := range all {
		e := protocol.FromRefused(r)
		if e.GetReason() == pb.Reason_REASON_UNSPECIFIED || e.GetMessage() == "" {
			t.Errorf("%+v gives %v", r, e)
		}
	}
}

func TestARefusalNamesItsLimit(t *testing.T) {
	e := protocol.FromRefused(lead.Refused{Code: command.QuotaExceeded, Limit: "16384 waiters of one name"})
	if !strings.Contains(e.GetMessage(), "16384 waiters") {
		t.Errorf("got %q", e.GetMessage())
	}
}

func TestAnErrorSurvivesGRPC(t *testing.T) {
	e := &pb.Error{
		Reason: pb.Reason_REASON_BUSY, Message: "busy", Field: "claim", Position: 3,
		Holders: []*pb.Holder{{Session: someID, Token: 12}}, LeaderAddress: "h:1",
	}
	err := fmt.Errorf("call: %w", protocol.Err(e))
	if status.Code(err) != codes.Aborted {
		t.Errorf("code %v, want Aborted", status.Code(err))
	}
	if got := protocol.FromErr(err); !proto.Equal(got, e) {
		t.Errorf("got %v, want %v", got, e)
	}
	info := detail[*errdetails.ErrorInfo](t, err)
	want := map[string]string{"field": "claim", "leader_address": "h:1", "position": "3", "holder": someID, "holder_token": "12"}
	if info.GetReason() != "BUSY" || info.GetDomain() != "lockstep.dev" {
		t.Errorf("got %v", info)
	}
	expect(t, info.GetMetadata(), want)
}

func detail[D any](t *testing.T, err error) D {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if d, ok := d.(D); ok {
			return d
		}
	}
	t.Fatalf("%v has no such detail", err)
	panic("unreachable")
}

func TestAnOverloadedErrorSaysWhenToRetry(t *testing.T) {
	err := protocol.Err(protocol.FromRefused(lead.Refused{Reason: lead.Overloaded}))
	if got := detail[*errdetails.RetryInfo](t, err).GetRetryDelay().AsDuration(); got != protocol.RetryDelay {
		t.Errorf("retry delay %v, want %v", got, protocol.RetryDelay)
	}
}

func TestAForeignErrorHasNoReason(t *testing.T) {
	if got := protocol.FromErr(status.Error(codes.Internal, "x")); got != nil {
		t.Errorf("got %v", got)
	}
	if got := protocol.FromErr(fmt.Errorf("x")); got != nil {
		t.Errorf("got %v", got)
	}
}

func TestRepliesBecomeEvents(t *testing.T) {
	id, _ := command.ParseSessionID(someID)
	secret := command.Secret(someSecret)
	for _, c := range []struct {
		answer lead.Answer
		want   string
	}{
		{lead.Opened{Session: id, Secret: secret, TTL: 3, Grace: 4}, `opened { session: "` + someID + `" secret: "` + strings.Repeat(`\x07`, 16) + `" ttl_ms: 3 grace_ms: 4 }`},
		{lead.Attached{Change: 2, TTL: 3, Grace: 4}, `attached { change: 2 ttl_ms: 3 grace_ms: 4 }`},
		{lead.Kept{Number: 5, Change: 6}, `kept { number: 5 change: 6 }`},
		{lead.Claimed{Claim: command.ClaimStatus{Seq: 1, State: command.Granted, Token: 9}}, `claim { seq: 1 state: CLAIM_STATE_GRANTED token: 9 }`},
		{lead.Closed{}, `closed {}`},
		{lead.Changed{Claim: command.ClaimStatus{Seq: 1, State: command.Revoked, Change: 7, By: "b", Reason: "r"}}, `change { seq: 1 state: CLAIM_STATE_REVOKED change: 7 by: "b" reason: "r" }`},
		{lead.Ended{Code: command.SessionRevoked, By: "b", Reason: "r"}, `ended { reason: REASON_REVOKED by: "b" detail: "r" }`},
		{lead.Ended{Code: command.SessionExpired}, `ended { reason: REASON_SESSION_EXPIRED }`},
		{lead.Refused{Reason: lead.OldAttachment}, `error { reason: REASON_STALE_REQUEST field: "number" message: "another connection has attached the session with this number or a higher one: attach with a higher number" }`},
	} {
		want := &pb.ServerEvent{}
		if err := prototext.Unmarshal([]byte(`tag: 8 session: "`+someID+`" `+c.want), want); err != nil {
			t.Fatal(err)
		}
		if got := protocol.ToClient(lead.Reply{Stream: 1, Tag: 8, Session: id, Answer: c.answer}); !proto.Equal(got, want) {
			t.Errorf("%T: got %v, want %v", c.answer, got, want)
		}
	}
}

func TestAUnaryAnswerOnAStreamPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	protocol.ToClient(lead.Reply{Answer: lead.LockRead{}})
}

func TestWireNumbersEqualMachineNumbers(t *testing.T) {
	for s, want := range map[command.State]pb.ClaimState{
		command.Queued: pb.ClaimState_CLAIM_STATE_QUEUED, command.Granted: pb.ClaimState_CLAIM_STATE_GRANTED,
		command.Released: pb.ClaimState_CLAIM_STATE_RELEASED, command.Cancelled: pb.ClaimState_CLAIM_STATE_CANCELLED,
		command.Busy: pb.ClaimState_CLAIM_STATE_BUSY, command.WaitEnded: pb.ClaimState_CLAIM_STATE_WAIT_ENDED,
		command.Revoked: pb.ClaimState_CLAIM_STATE_REVOKED, command.Expired: pb.ClaimState_CLAIM_STATE_EXPIRED,
	} {
		if got := protocol.ToClaim(command.ClaimStatus{State: s}).GetState(); got != want {
			t.Errorf("state %d is %v, want %v", s, got, want)
		}
	}
	for k, want := range map[command.EventKind]pb.EventKind{
		command.EventGranted: pb.EventKind_EVENT_KIND_GRANTED, command.EventQueued: pb.EventKind_EVENT_KIND_QUEUED,
		command.EventReleased: pb.EventKind_EVENT_KIND_RELEASED, command.EventExpired: pb.EventKind_EVENT_KIND_EXPIRED,
		command.EventRevoked: pb.EventKind_EVENT_KIND_REVOKED, command.EventCancelled: pb.EventKind_EVENT_KIND_CANCELLED,
	} {
		got := protocol.ToHistory(lead.HistoryRead{Events: []command.Event{{Kind: k}}}).GetEvents()[0].GetKind()
		if got != want {
			t.Errorf("event %d is %v, want %v", k, got, want)
		}
	}
}

func TestAnAcquireSucceedsOnlyWithAGrant(t *testing.T) {
	for state, want := range map[command.State]pb.Reason{
		command.Busy: pb.Reason_REASON_BUSY, command.WaitEnded: pb.Reason_REASON_BUSY,
		command.Cancelled: pb.Reason_REASON_NOT_QUEUED, command.Released: pb.Reason_REASON_NOT_HELD,
		command.Revoked: pb.Reason_REASON_REVOKED, command.Expired: pb.Reason_REASON_SESSION_EXPIRED,
	} {
		resp, e := protocol.ToAcquire(command.ClaimStatus{State: state})
		if resp != nil || e.GetReason() != want {
			t.Errorf("state %d: %v, %v, want %v", state, resp, e, want)
		}
	}
	if resp, e := protocol.ToAcquire(command.ClaimStatus{State: command.Queued}); resp != nil || e != nil {
		t.Errorf("a queued claim was answered %v, %v", resp, e)
	}
	if resp, e := protocol.ToAcquire(command.ClaimStatus{State: command.Granted, Token: 3}); e != nil || resp.GetClaim().GetToken() != 3 {
		t.Errorf("a granted claim was answered %v, %v", resp, e)
	}
}

func bigHolder() command.Holder {
	return command.Holder{Metadata: []command.Label{{Key: "k", Value: strings.Repeat("v", 2000)}}}
}

func TestALockWithManyWaitersIsCutBelowWhatClientsAccept(t *testing.T) {
	l := command.Lock{Name: "a", Waiters: slices.Repeat([]command.Holder{bigHolder()}, 10_000), Waiting: 10_000}
	got := protocol.ToGetLock(lead.LockRead{Lock: l})
	if n := proto.Size(got); n > 300<<10 || n < 200<<10 {
		t.Errorf("the answer has %d bytes", n)
	}
	if got.GetLock().GetWaiterCount() != 10_000 {
		t.Errorf("waiter_count %d, want 10000", got.GetLock().GetWaiterCount())
	}
}

func TestALockWithManyHoldersIsCutToo(t *testing.T) {
	many := slices.Repeat([]command.Holder{bigHolder()}, 10_000)
	l := command.Lock{Name: "a", Mode: command.Shared, Holders: many, Waiters: many, Waiting: len(many)}
	got := protocol.ToGetLock(lead.LockRead{Lock: l})
	if n := proto.Size(got); n > 600<<10 || len(got.GetLock().GetHolders()) < 100 || len(got.GetLock().GetWaiters()) < 1 {
		t.Errorf("the answer has %d bytes", n)
	}
	// Paging must get past it.
	page := protocol.ToListLocks(lead.LocksRead{Locks: []command.Lock{l}, More: true})
	if n := proto.Size(page); n > 600<<10 || len(page.GetLocks()) != 1 || page.GetNextPageToken() == "" {
		t.Errorf("a page has %d bytes, %d locks, next page %q", n, len(page.GetLocks()), page.GetNextPageToken())
	}
}

func TestPagesCutByTheirSizeLoseNothing(t *testing.T) {
	var all []command.Lock
	for i := range 1000 {
		all = append(all, command.Lock{Name: fmt.Sprintf("a/%04d", i), Holders: slices.Repeat([]command.Holder{bigHolder()}, 5)})
	}
	var names []string
	for token := ""; ; {
		req, e := protocol.FromListLocks(&pb.ListLocksRequest{PageToken: token, PageSize: 1000})
		if e != nil {
			t.Fatal(e)
		}
		after := req.Body.(lead.ReadLocks).After
		rest := all[sortSearch(all, after):]
		page := protocol.ToListLocks(lead.LocksRead{Locks: rest})
		if n := proto.Size(page); n > 600<<10 {
			t.Fatalf("a page has %d bytes", n)
		}
		for _, l := range page.GetLocks() {
			names = append(names, l.GetName())
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if len(names) != 1000 || !slices.IsSorted(names) {
		t.Errorf("the pages have %d names, want 1000 in order", len(names))
	}
}

func sortSearch(all []command.Lock, after string) int {
	i := 0
	for i < len(all) && all[i].Name <= after {
		i++
	}
	return i
}

func TestAHistoryThatIsTooBigLosesItsOldestEventsAndSaysSo(t *testing.T) {
	events := make([]command.Event, 1000)
	for i := range events {
		events[i] = command.Event{Number: uint64(i + 1), Metadata: bigHolder().Metadata, Reason: strings.Repeat("r", 1000)}
	}
	got := protocol.ToHistory(lead.HistoryRead{Events: events, Complete: true})
	kept := got.GetEvents()
	if len(kept) >= 1000 || kept[len(kept)-1].GetNumber() != 1000 || got.GetComplete() {
		t.Errorf("kept %d events, complete %v", len(kept), got.GetComplete())
	}
}
