package service_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// A caller makes unary calls for one session.
type caller struct {
	t       *testing.T
	api     pb.LockServiceClient
	session string
	secret  []byte
}

func newCaller(t *testing.T, api pb.LockServiceClient, open *pb.OpenSessionRequest) *caller {
	t.Helper()
	r, err := api.OpenSession(patient(t), open)
	if err != nil {
		t.Fatal(err)
	}
	return &caller{t: t, api: api, session: r.GetSession(), secret: r.GetSecret()}
}

func (c *caller) acquire(ctx context.Context, r *pb.AcquireRequest) (*pb.ClaimStatus, error) {
	r.Session, r.Secret = c.session, c.secret
	resp, err := c.api.Acquire(ctx, r)
	return resp.GetClaim(), err
}

func (c *caller) take(name string) *pb.ClaimStatus {
	c.t.Helper()
	claim, err := c.acquire(patient(c.t), &pb.AcquireRequest{Spec: &pb.ClaimSpec{Names: []string{name}}})
	if err != nil {
		c.t.Fatal(err)
	}
	return claim
}

func (c *caller) release(claim *pb.ClaimStatus) error {
	_, err := c.api.Release(patient(c.t), &pb.ReleaseRequest{Session: c.session, Secret: c.secret, Seq: claim.GetSeq(), Token: claim.GetToken()})
	return err
}

func (c *caller) close() {
	c.t.Helper()
	if _, err := c.api.CloseSession(patient(c.t), &pb.CloseSessionRequest{Session: c.session, Secret: c.secret}); err != nil {
		c.t.Fatal(err)
	}
}

func try(name string) *pb.AcquireRequest {
	return &pb.AcquireRequest{Spec: &pb.ClaimSpec{Names: []string{name}, WaitMs: proto.Uint64(0)}}
}

func lock(t *testing.T, api pb.LockServiceClient, name string) *pb.Lock {
	t.Helper()
	r, err := api.GetLock(patient(t), &pb.GetLockRequest{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetLock()
}

func waitForWaiters(t *testing.T, api pb.LockServiceClient, name string, n int) {
	t.Helper()
	eventually(t, func() error {
		if l := lock(t, api, name); len(l.GetWaiters()) != n {
			return fmt.Errorf("%d waiters, want %d", len(l.GetWaiters()), n)
		}
		return nil
	})
}

func TestTheUnaryCallsTakeAndFreeALock(t *testing.T) {
	t.Parallel()
	api := locks(t, startNode(t))
	a := newCaller(t, api, &pb.OpenSessionRequest{Metadata: map[string]string{"host": "h1"}})
	first := a.take("billing/nightly")
	if first.GetToken() == 0 || first.GetState() != pb.ClaimState_CLAIM_STATE_GRANTED {
		t.Fatalf("granted %v", first)
	}

	l := lock(t, api, "billing/nightly")
	if len(l.GetHolders()) != 1 || l.GetHolders()[0].GetSession() != a.session || l.GetHolders()[0].GetMetadata()["host"] != "h1" {
		t.Errorf("the lock is shown as %v", l)
	}
	if strings.Contains(l.String(), string(a.secret)) {
		t.Error("the lock shows the secret of its holder")
	}

	b := newCaller(t, api, &pb.OpenSessionRequest{})
	_, err := b.acquire(patient(t), try("billing/nightly"))
	busy := wantReason(t, err, pb.Reason_REASON_BUSY)
	if len(busy.GetHolders()) != 1 || busy.GetHolders()[0].GetSession() != a.session {
		t.Errorf("BUSY names %v, want the holder %s", busy.GetHolders(), a.session)
	}

	for range 2 { // the second time it is already released
		if err := a.release(first); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	second := b.take("billing/nightly")
	if second.GetToken() <= first.GetToken() {
		t.Errorf("the token went from %d to %d", first.GetToken(), second.GetToken())
	}
	events, err := api.History(patient(t), &pb.HistoryRequest{Name: "billing/nightly"})
	if err != nil || !events.GetComplete() || len(events.GetEvents()) != 3 {
		t.Errorf("history %v, %v; want granted, released, granted", events, err)
	}
	b.close()
	if l := lock(t, api, "billing/nightly"); len(l.GetHolders()) != 0 {
		t.Errorf("after its session was closed the lock is held by %v", l.GetHolders())
	}
}

func TestAcquireWaitsForTheHolder(t *testing.T) {
	t.Parallel()
	api := locks(t, startNode(t))
	a, b := newCaller(t, api, &pb.OpenSessionRequest{}), newCaller(t, api, &pb.OpenSessionRequest{})
	held := a.take("x")
	granted := make(chan error, 1)
	go func() {
		_, err := b.acquire(patient(t), &pb.AcquireRequest{Spec: &pb.ClaimSpec{Names: []string{"x"}}})
		granted <- err
	}()
	waitForWaiters(t, api, "x", 1)
	select {
	case err := <-granted:
		t.Fatalf("answered while another holds the lock: %v", err)
	default:
	}
	if err := a.release(held); err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Error(err)
	}
}

func TestAWaitThatRunsOutIsBusy(t *testing.T) {
	t.Parallel()
	api := locks(t, startNode(t))
	a, b := newCaller(t, api, &pb.OpenSessionRequest{}), newCaller(t, api, &pb.OpenSessionRequest{})
	a.take("x")
	_, err := b.acquire(patient(t), &pb.AcquireRequest{Spec: &pb.ClaimSpec{Names: []string{"x"}, WaitMs: proto.Uint64(50)}})
	wantReason(t, err, pb.Reason_REASON_BUSY)
	waitForWaiters(t, api, "x", 0)
}

func TestACallThatIsGivenUpLeavesNoTicket(t *testing.T) {
	t.Parallel()
	api := locks(t, startNode(t))
	a, b := newCaller(t, api, &pb.OpenSessionRequest{}), newCaller(t, api, &pb.OpenSessionRequest{})
	held := a.take("x")
	ctx, cancel := context.WithCancel(patient(t))
	done := make(chan error, 1)
	go func() {
		_, err := b.acquire(ctx, &pb.AcquireRequest{Spec: &pb.ClaimSpec{Names: []string{"x"}}})
		done <- err
	}()
	waitForWaiters(t, api, "x", 1)
	cancel()
	if err := <-done; status.Code(err) != codes.Canceled {
		t.Errorf("the call ended with %v", err)
	}
	waitForWaiters(t, api, "x", 0)
	if err := a.release(held); err != nil {
		t.Fatal(err)
	}
	if l := lock(t, api, "x"); len(l.GetHolders()) != 0 {
		t.Errorf("the abandoned claim was granted: %v", l.GetHolders())
	}
}

func TestACallWithADeadlineEndsThereAndLeavesNoTicket(t *testing.T) {
	t.Parallel()
	api := locks(t, startNode(t))
	a, b := newCaller(t, api, &pb.OpenSessionRequest{}), newCaller(t, api, &pb.OpenSessionRequest{})
	a.take("x")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := b.acquire(ctx, &pb.AcquireRequest{Spec: &pb.ClaimSpec{Names: []string{"x"}}})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the call ended with %v", err)
	}
	waitForWaiters(t, api, "x", 0)
}

// TestACallThatEndsAroundItsGrantLeavesNothing ends calls at every moment around a grant. It calls
// the service without a network, so that no answer is lost on the way.
func TestACallThatEndsAroundItsGrantLeavesNothing(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	api := locks(t, m)
	b := newCaller(t, api, &pb.OpenSessionRequest{TtlMs: 60_000})
	acquire := func(timeout time.Duration, r *pb.AcquireRequest) (*pb.ClaimStatus, error) {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		r.Session, r.Secret = b.session, b.secret
		resp, err := m.service.Acquire(ctx, r)
		return resp.GetClaim(), err
	}
	answered := 0
	for i := range 200 {
		claim, err := acquire(time.Duration(i)*10*time.Microsecond, &pb.AcquireRequest{Spec: &pb.ClaimSpec{Names: []string{"x"}}})
		if err != nil {
			continue
		}
		answered++
		if err := b.release(claim); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of 200 calls were answered in time", answered)
	eventually(t, func() error {
		if l := lock(t, api, "x"); len(l.GetHolders())+len(l.GetWaiters()) != 0 {
			return fmt.Errorf("left over: %v", l)
		}
		return nil
	})

	// A claim that its caller can find again is kept.
	nonce := func() *pb.AcquireRequest {
		return &pb.AcquireRequest{Nonce: "n", Spec: &pb.ClaimSpec{Names: []string{"y"}}}
	}
	if _, err := acquire(0, nonce()); err == nil {
		t.Fatal("a call that had ended was answered")
	}
	eventually(t, func() error {
		if l := lock(t, api, "y"); len(l.GetHolders()) != 1 {
			return fmt.Errorf("not held: %v", l)
		}
		return nil
	})
	if c, err := acquire(patience, nonce()); err != nil || c.GetSeq() == 0 {
		t.Errorf("the same nonce got %v, %v", c, err)
	}
}

func TestTheSameNonceIsTheSameClaim(t *testing.T) {
	t.Parallel()
	api := locks(t, startNode(t))
	a := newCaller(t, api, &pb.OpenSessionRequest{})
	r := func() *pb.AcquireRequest {
		return &pb.AcquireRequest{Nonce: "n1", Spec: &pb.ClaimSpec{Names: []string{"x"}}}
	}
	first, err := a.acquire(patient(t), r())
	if err != nil {
		t.Fatal(err)
	}
	again, err := a.acquire(patient(t), r())
	if err != nil || again.GetSeq() != first.GetSeq() || again.GetToken() != first.GetToken() {
		t.Errorf("got %v, %v, want %v again", again, err, first)
	}
	if err := a.release(first); err != nil {
		t.Fatal(err)
	}
	_, err = a.acquire(patient(t), r())
	wantReason(t, err, pb.Reason_REASON_NOT_HELD)
}

func TestAClientNumberedSessionRetriesByItsNumber(t *testing.T) {
	t.Parallel()
	api := locks(t, startNode(t))
	a := newCaller(t, api, &pb.OpenSessionRequest{ClientNumbered: true})
	first, err := a.acquire(patient(t), &pb.AcquireRequest{Seq: 1, Spec: &pb.ClaimSpec{Names: []string{"x"}}})
	if err != nil {
		t.Fatal(err)
	}
	again, err := a.acquire(patient(t), &pb.AcquireRequest{Seq: 1, Spec: &pb.ClaimSpec{Names: []string{"x"}}})
	if err != nil || again.GetToken() != first.GetToken() {
		t.Errorf("got %v, %v, want %v again", again, err, first)
	}
	_, err = a.acquire(patient(t), &pb.AcquireRequest{Seq: 1, Spec: &pb.ClaimSpec{Names: []string{"y"}}})
	wantReason(t, err, pb.Reason_REASON_REQUEST_REUSED)
	if code := status.Code(err); code != codes.InvalidArgument {
		t.Errorf("code %v, want InvalidArgument", code)
	}
	_, err = a.acquire(patient(t), &pb.AcquireRequest{Seq: 5000, Spec: &pb.ClaimSpec{Names: []string{"y"}}})
	wantReason(t, err, pb.Reason_REASON_OUT_OF_RANGE)
	_, err = a.acquire(patient(t), &pb.AcquireRequest{Spec: &pb.ClaimSpec{Names: []string{"y"}}})
	if status.Code(err) == codes.OK {
		t.Error("a client-numbered session got a claim without a number")
	}

	// A cancel for a number that has not been seen yet is stored as the answer for that number.
	c, err := api.Cancel(patient(t), &pb.CancelRequest{Session: a.session, Secret: a.secret, Seq: 7})
	if err != nil || c.GetClaim().GetState() != pb.ClaimState_CLAIM_STATE_CANCELLED {
		t.Fatalf("cancel: %v, %v", c, err)
	}
	_, err = a.acquire(patient(t), &pb.AcquireRequest{Seq: 7, Spec: &pb.ClaimSpec{Names: []string{"z"}}})
	wantReason(t, err, pb.Reason_REASON_NOT_QUEUED)
}

func TestWhatIsNotOnesOwnIsRefused(t *testing.T) {
	t.Parallel()
	api := locks(t, startNode(t))
	a, b := newCaller(t, api, &pb.OpenSessionRequest{}), newCaller(t, api, &pb.OpenSessionRequest{})
	held := a.take("x")
	for name, c := range map[string]struct {
		session string
		secret  []byte
		seq     uint64
		token   uint64
		want    pb.Reason
		code    codes.Code
	}{
		"an unknown session":         {strings.Repeat("ab", 16), a.secret, held.GetSeq(), held.GetToken(), pb.Reason_REASON_SESSION_UNKNOWN, codes.NotFound},
		"a malformed session":        {"1", a.secret, held.GetSeq(), held.GetToken(), pb.Reason_REASON_SESSION_UNKNOWN, codes.NotFound},
		"another's secret":           {a.session, b.secret, held.GetSeq(), held.GetToken(), pb.Reason_REASON_SESSION_UNKNOWN, codes.NotFound},
		"no secret":                  {a.session, nil, held.GetSeq(), held.GetToken(), pb.Reason_REASON_SESSION_UNKNOWN, codes.NotFound},
		"a made-up token":            {a.session, a.secret, held.GetSeq(), held.GetToken() + 1, pb.Reason_REASON_NOT_HELD, codes.FailedPrecondition},
		"the token of another claim": {b.session, b.secret, 1, held.GetToken(), pb.Reason_REASON_NOT_HELD, codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := api.Release(patient(t), &pb.ReleaseRequest{Session: c.session, Secret: c.secret, Seq: c.seq, Token: c.token})
			wantReason(t, err, c.want)
			if got := status.Code(err); got != c.code {
				t.Errorf("code %v, want %v", got, c.code)
			}
		})
	}
	if l := lock(t, api, "x"); len(l.GetHolders()) != 1 {
		t.Errorf("the lock is not held any more: %v", l)
	}
}

func TestAReleaseOfAQueuedClaimIsRefusedAndLeavesTheQueue(t *testing.T) {
	t.Parallel()
	api := locks(t, startNode(t))
	a, b := newCaller(t, api, &pb.OpenSessionRequest{}), newCaller(t, api, &pb.OpenSessionRequest{ClientNumbered: true})
	held := a.take("x")
	done := make(chan error, 1)
	go func() {
		_, err := b.acquire(patient(t), &pb.AcquireRequest{Seq: 1, Spec: &pb.ClaimSpec{Names: []string{"x"}}})
		done <- err
	}()
	waitForWaiters(t, api, "x", 1)
	err := b.release(&pb.ClaimStatus{Seq: 1, Token: held.GetToken()})
	if e := wantReason(t, err, pb.Reason_REASON_NOT_HELD); !strings.Contains(e.GetMessage(), "cancel") {
		t.Errorf("the error has no hint: %s", e.GetMessage())
	}
	waitForWaiters(t, api, "x", 1)
	if err := a.release(held); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAnExpiredSessionIsToldSo(t *testing.T) {
	t.Parallel()
	api := locks(t, startNode(t))
	a := newCaller(t, api, &pb.OpenSessionRequest{TtlMs: 1000})
	held := a.take("x")
	b := newCaller(t, api, &pb.OpenSessionRequest{})
	if again := b.take("x"); again.GetToken() <= held.GetToken() {
		t.Errorf("the token went from %d to %d", held.GetToken(), again.GetToken())
	}
	_, err := api.KeepAlive(patient(t), &pb.KeepAliveRequest{Session: a.session, Secret: a.secret})
	wantReason(t, err, pb.Reason_REASON_SESSION_EXPIRED)
	if code := status.Code(err); code != codes.FailedPrecondition {
		t.Errorf("code %v, want FailedPrecondition", code)
	}
	// Whether the release is LOST or the session's end is reported, it is not a success and frees
	// nothing.
	if err := a.release(held); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the release of the old holder ended with %v", err)
	}
}

func TestAKeepAliveTellsWhatChanged(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	api := locks(t, m)
	a := newCaller(t, api, &pb.OpenSessionRequest{})
	held := a.take("x")
	admin := pb.NewAdminServiceClient(dial(t, m.address))
	r, err := admin.Revoke(patient(t), &pb.RevokeRequest{Target: &pb.RevokeRequest_Name{Name: "x"}, By: "ops", Reason: "maintenance"})
	if err != nil || r.GetRevoked() != 1 {
		t.Fatalf("revoke: %v, %v", r, err)
	}
	k, err := api.KeepAlive(patient(t), &pb.KeepAliveRequest{Session: a.session, Secret: a.secret, Number: 4})
	if err != nil {
		t.Fatal(err)
	}
	if k.GetNumber() != 4 || len(k.GetChanges()) != 1 || k.GetTtlMs() != 10_000 {
		t.Fatalf("got %v, want one change", k)
	}
	if c := k.GetChanges()[0]; c.GetSeq() != held.GetSeq() || c.GetState() != pb.ClaimState_CLAIM_STATE_REVOKED || c.GetBy() != "ops" || c.GetReason() != "maintenance" {
		t.Errorf("the change is %v", c)
	}
	_, err = admin.Revoke(patient(t), &pb.RevokeRequest{Target: &pb.RevokeRequest_Session{Session: "zz"}, Reason: "r"})
	wantReason(t, err, pb.Reason_REASON_SESSION_UNKNOWN)
}

func TestListsHavePages(t *testing.T) {
	t.Parallel()
	api := locks(t, startNode(t))
	a := newCaller(t, api, &pb.OpenSessionRequest{})
	for i := range 7 {
		a.take(fmt.Sprintf("team/%d", i))
	}
	a.take("other")
	var names []string
	for token, pages := "", 0; ; pages++ {
		r, err := api.ListLocks(patient(t), &pb.ListLocksRequest{Prefix: "team/", PageSize: 3, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range r.GetLocks() {
			names = append(names, l.GetName())
		}
		if token = r.GetNextPageToken(); token == "" || pages > 5 {
			break
		}
	}
	if got := strings.Join(names, " "); got != "team/0 team/1 team/2 team/3 team/4 team/5 team/6" {
		t.Errorf("got %s", got)
	}
}

func TestSessionsAreListedInPagesInTheOrderOfTheirIds(t *testing.T) {
	t.Parallel()
	api := locks(t, startNode(t))
	var want []string
	for i := range 5 {
		c := newCaller(t, api, &pb.OpenSessionRequest{TtlMs: 60_000, Metadata: map[string]string{"n": fmt.Sprint(i)}})
		want = append(want, c.session)
		c.take(fmt.Sprintf("team/%d", i))
	}
	var got []string
	for token, pages := "", 0; ; pages++ {
		r, err := api.ListSessions(patient(t), &pb.ListSessionsRequest{PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range r.GetSessions() {
			got = append(got, s.GetSession())
			if s.GetHolding() != 1 || s.GetWaiting() != 0 || s.GetTtlMs() != 60_000 || s.GetMetadata()["n"] == "" ||
				s.GetExpiresInMs() == 0 || s.GetExpiresInMs() > 61_000 {
				t.Errorf("a session is shown as %v", s)
			}
		}
		if token = r.GetNextPageToken(); token == "" || pages > 5 {
			break
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	_, err := api.ListSessions(patient(t), &pb.ListSessionsRequest{PageToken: "team/1"})
	if e := wantReason(t, err, pb.Reason_REASON_INVALID_ARGUMENT); e.GetField() != "page_token" {
		t.Errorf("field %q, want page_token", e.GetField())
	}
}
