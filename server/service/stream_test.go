package service_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/protocol"
	"github.com/lockstep-dev/lockstep/server/service"
)

// A link is the client's end of a stream. It reads frames one event at a time.
type link struct {
	t      testing.TB
	grpc   pb.LockService_SessionClient
	events []*pb.ServerEvent
}

func connect(t testing.TB, m *member) *link {
	t.Helper()
	g, err := locks(t, m).Session(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	return &link{t: t, grpc: g}
}

func (l *link) send(requests ...*pb.ClientRequest) {
	l.t.Helper()
	if err := l.grpc.Send(&pb.ClientFrame{Requests: requests}); err != nil && !errors.Is(err, io.EOF) { // next reports the end
		l.t.Fatal(err)
	}
}

func (l *link) next() (*pb.ServerEvent, error) {
	for len(l.events) == 0 {
		f, err := l.grpc.Recv()
		if err != nil {
			return nil, err
		}
		l.events = f.GetEvents()
	}
	e := l.events[0]
	l.events = l.events[1:]
	return e, nil
}

// event returns the next event, which must exist.
func (l *link) event() *pb.ServerEvent {
	l.t.Helper()
	e, err := l.next()
	if err != nil {
		l.t.Fatalf("the stream ended: %v", err)
	}
	return e
}

// answer returns the answer to a tag; events before it are dropped.
func (l *link) answer(tag uint64) *pb.ServerEvent {
	l.t.Helper()
	for {
		if e := l.event(); e.GetTag() == tag {
			return e
		}
	}
}

// end reads until the stream ends and returns the reason.
func (l *link) end() error {
	for {
		if _, err := l.next(); err != nil {
			return err
		}
	}
}

func open(tag, ttl uint64) *pb.ClientRequest {
	return &pb.ClientRequest{Tag: tag, Body: &pb.ClientRequest_Open{Open: &pb.StreamOpen{TtlMs: ttl}}}
}

func acquire(tag uint64, session string, seq uint64, names ...string) *pb.ClientRequest {
	return acquireSpec(tag, session, seq, &pb.ClaimSpec{Names: names})
}

func acquireSpec(tag uint64, session string, seq uint64, spec *pb.ClaimSpec) *pb.ClientRequest {
	return &pb.ClientRequest{Tag: tag, Session: session, Body: &pb.ClientRequest_Acquire{Acquire: &pb.StreamAcquire{Seq: seq, Spec: spec}}}
}

func release(tag uint64, session string, c *pb.ClaimStatus) *pb.ClientRequest {
	return &pb.ClientRequest{Tag: tag, Session: session, Body: &pb.ClientRequest_Release{Release: &pb.StreamRelease{Seq: c.GetSeq(), Token: c.GetToken()}}}
}

func keepAlive(tag uint64, session string, number uint64) *pb.ClientRequest {
	return &pb.ClientRequest{Tag: tag, Session: session, Body: &pb.ClientRequest_KeepAlive{KeepAlive: &pb.StreamKeepAlive{Number: number}}}
}

func attach(tag uint64, o *pb.StreamOpened, number, seen uint64) *pb.ClientRequest {
	return &pb.ClientRequest{Tag: tag, Session: o.GetSession(), Body: &pb.ClientRequest_Attach{
		Attach: &pb.StreamAttach{Secret: o.GetSecret(), Number: number, Seen: seen},
	}}
}

func (l *link) open(ttl uint64) *pb.StreamOpened {
	l.t.Helper()
	l.send(open(1<<40, ttl))
	e := l.answer(1 << 40)
	if e.GetOpened() == nil {
		l.t.Fatalf("open was answered %v", e)
	}
	return e.GetOpened()
}

// granted sends an acquire and returns the grant.
func (l *link) granted(session string, seq uint64, name string) *pb.ClaimStatus {
	l.t.Helper()
	l.send(acquire(1<<41, session, seq, name))
	c := l.answer(1 << 41).GetClaim()
	if c.GetState() != pb.ClaimState_CLAIM_STATE_GRANTED {
		l.t.Fatalf("acquire was answered %v", c)
	}
	return c
}

func TestAStreamServesASession(t *testing.T) {
	t.Parallel()
	l := connect(t, startNode(t))
	o := l.open(10_000)
	if len(o.GetSecret()) != 16 || len(o.GetSession()) != 32 || o.GetTtlMs() != 10_000 || o.GetGraceMs() == 0 {
		t.Errorf("opened %v", o)
	}
	c := l.granted(o.GetSession(), 1, "x")
	l.send(keepAlive(2, o.GetSession(), 77), release(3, o.GetSession(), c))
	for range 2 {
		switch e := l.event(); e.GetTag() {
		case 2:
			if e.GetKept().GetNumber() != 77 {
				t.Errorf("kept %v", e)
			}
		case 3:
			if e.GetClaim().GetState() != pb.ClaimState_CLAIM_STATE_RELEASED {
				t.Errorf("released %v", e)
			}
		}
	}
	l.send(&pb.ClientRequest{Tag: 4, Session: o.GetSession(), Body: &pb.ClientRequest_Close{Close: &pb.StreamClose{}}})
	if e := l.answer(4); e.GetClosed() == nil {
		t.Errorf("closed %v", e)
	}
	if err := l.grpc.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := l.end(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestTheSessionsOfAStreamThatEndsAreDetached(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	attached := func(want int) {
		t.Helper()
		eventually(t, func() error {
			if n := m.Status().Replica.Attached; n != want {
				return fmt.Errorf("%d sessions are attached, want %d", n, want)
			}
			return nil
		})
	}
	l := connect(t, m)
	l.open(60_000)
	l.open(60_000)
	attached(2)
	if err := l.grpc.CloseSend(); err != nil {
		t.Fatal(err)
	}
	attached(0)
}

func TestOneStreamServesManySessions(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	l := connect(t, m)
	const n = 2000
	var frame []*pb.ClientRequest
	for i := range n {
		frame = append(frame, open(uint64(i+1), 60_000))
	}
	l.send(frame...)
	sessions := map[uint64]string{}
	frame = nil
	for range n {
		e := l.event()
		sessions[e.GetTag()] = e.GetOpened().GetSession()
		frame = append(frame, acquire(e.GetTag(), e.GetSession(), 1, fmt.Sprintf("jobs/%d", e.GetTag()%500)))
	}
	if len(sessions) != n {
		t.Fatalf("%d sessions were opened, want %d", len(sessions), n)
	}
	l.send(frame...)
	granted := 0
	for range n {
		if l.event().GetClaim().GetState() == pb.ClaimState_CLAIM_STATE_GRANTED {
			granted++
		}
	}
	if granted != 500 {
		t.Errorf("%d grants of 500 names", granted)
	}
	frame = nil
	for tag, session := range sessions {
		frame = append(frame, keepAlive(tag, session, tag))
	}
	before := settled(m)
	l.send(frame...)
	for range n {
		if e := l.event(); e.GetKept().GetNumber() != e.GetTag() {
			t.Fatalf("got %v, want a keepalive's answer", e)
		}
	}
	if after := settled(m); after-before > 1 { // a check of the state's hash may fall in between
		t.Errorf("%d keepalives took %d log entries", n, after-before)
	}
}

// settled returns the last applied entry, once it no longer changes: a Status may be 50 ms old.
func settled(m *member) uint64 {
	for last := m.Status().Applied; ; {
		time.Sleep(200 * time.Millisecond)
		now := m.Status().Applied
		if now == last {
			return now
		}
		last = now
	}
}

func TestAWaiterOnAStreamIsToldOfItsGrant(t *testing.T) {
	t.Parallel()
	l := connect(t, startNode(t))
	a, b := l.open(10_000), l.open(10_000)
	held := l.granted(a.GetSession(), 1, "x")
	l.send(acquire(5, b.GetSession(), 1, "x"))
	if c := l.answer(5).GetClaim(); c.GetState() != pb.ClaimState_CLAIM_STATE_QUEUED || c.GetPosition() != 1 || c.GetHolders()[0].GetSession() != a.GetSession() {
		t.Fatalf("queued %v", c)
	}
	l.send(release(6, a.GetSession(), held))
	for {
		e := l.event()
		if c := e.GetChange(); c != nil && e.GetSession() == b.GetSession() {
			if c.GetState() != pb.ClaimState_CLAIM_STATE_GRANTED || c.GetToken() <= held.GetToken() {
				t.Errorf("the change is %v", e)
			}
			return
		}
	}
}

func TestASessionIsBoundToTheStreamThatAttachedItLast(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	first, second := connect(t, m), connect(t, m)
	o := first.open(10_000)
	session := o.GetSession()

	second.send(keepAlive(1, session, 1))
	if e := second.answer(1).GetError(); e.GetReason() != pb.Reason_REASON_INVALID_ARGUMENT || e.GetField() != "session" {
		t.Errorf("a keepalive on a stream that the session is not attached to: %v", e)
	}
	second.send(attach(2, o, 1, 0))
	if e := second.answer(2).GetError(); e.GetReason() != pb.Reason_REASON_STALE_REQUEST {
		t.Errorf("an attachment with the number of the last: %v", e)
	}
	second.send(attach(3, &pb.StreamOpened{Session: session, Secret: make([]byte, 16)}, 2, 0))
	if e := second.answer(3).GetError(); e.GetReason() != pb.Reason_REASON_SESSION_UNKNOWN {
		t.Errorf("an attachment with a wrong secret: %v", e)
	}
	// What follows an attachment in the same frame is served after it.
	second.send(attach(4, o, 2, 0), acquire(5, session, 1, "x"), keepAlive(6, session, 9))
	seen := map[uint64]*pb.ServerEvent{}
	for len(seen) < 3 {
		e := second.event()
		seen[e.GetTag()] = e
	}
	if seen[4].GetAttached().GetTtlMs() != 10_000 || seen[5].GetClaim().GetToken() == 0 || seen[6].GetKept().GetNumber() != 9 {
		t.Errorf("attached %v, acquired %v, kept %v", seen[4], seen[5], seen[6])
	}
	first.send(keepAlive(7, session, 1))
	if e := first.answer(7).GetError(); e.GetReason() != pb.Reason_REASON_INVALID_ARGUMENT {
		t.Errorf("a keepalive on the stream that lost the session: %v", e)
	}
}

func TestAnAttachmentTellsWhatTheClientMissedFirst(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	first := connect(t, m)
	o := first.open(10_000)
	first.granted(o.GetSession(), 1, "x")
	if err := first.grpc.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := first.end(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	_, err := pb.NewAdminServiceClient(dial(t, m.address)).Revoke(patient(t), &pb.RevokeRequest{
		Target: &pb.RevokeRequest_Name{Name: "x"}, By: "ops", Reason: "r",
	})
	if err != nil {
		t.Fatal(err)
	}
	second := connect(t, m)
	second.send(attach(1, o, 2, 0))
	change, attached := second.event(), second.event()
	if change.GetChange().GetState() != pb.ClaimState_CLAIM_STATE_REVOKED || attached.GetAttached().GetChange() != change.GetChange().GetChange() {
		t.Errorf("got %v and %v, want the revocation and then the attachment", change, attached)
	}
}

func TestAStreamOnAFollowerIsSentToTheLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 3})
	leader := c.leader()
	e := wantReason(t, connect(t, c.follower()).end(), pb.Reason_REASON_NOT_LEADER)
	if e.GetLeaderAddress() != leader.address {
		t.Errorf("sent to %q, want %q", e.GetLeaderAddress(), leader.address)
	}
}

func TestAStreamEndsWhenItsNodeLeadsNoLonger(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 3})
	leader := c.leader()
	l := connect(t, leader)
	o := l.open(10_000)
	l.granted(o.GetSession(), 1, "x")
	call := make(chan error, 1)
	other := newCaller(t, locks(t, leader), &pb.OpenSessionRequest{})
	go func() {
		_, err := other.acquire(patient(t), &pb.AcquireRequest{Spec: &pb.ClaimSpec{Names: []string{"x"}}})
		call <- err
	}()
	waitForWaiters(t, other.api, "x", 1)
	if err := leader.HandOver(patient(t)); err != nil {
		t.Fatal(err)
	}
	toNext := wantReason(t, l.end(), pb.Reason_REASON_NOT_LEADER)
	wantReason(t, <-call, pb.Reason_REASON_NOT_LEADER)
	// On a busy machine the new leader may be known too late to be named.
	if next, named := c.leader(), toNext.GetLeaderAddress(); named != "" && named != next.address {
		t.Errorf("the stream was sent to %q, want %q", named, next.address)
	}

	// The session continues at the new leader, and so does what it held.
	l = connect(t, c.leader())
	l.send(attach(1, o, 2, 0), acquire(2, o.GetSession(), 1, "x"))
	if got := l.answer(2).GetClaim(); got.GetState() != pb.ClaimState_CLAIM_STATE_GRANTED {
		t.Errorf("at the new leader the claim is %v", got)
	}
}

func TestALimitOfTheMachineIsNamed(t *testing.T) {
	t.Parallel()
	limits := command.DefaultLimits()
	limits.WaitersPerName, limits.Sessions = 1, 3
	l := connect(t, startCluster(t, clusterOptions{nodes: 1, machine: limits}).leader())
	for range 3 {
		o := l.open(10_000)
		l.send(acquire(1, o.GetSession(), 1, "x"))
		e := l.answer(1)
		if e.GetError() != nil && (e.GetError().GetReason() != pb.Reason_REASON_QUOTA_EXCEEDED || !strings.Contains(e.GetError().GetMessage(), "1")) {
			t.Errorf("one waiter too many: %v", e)
		}
	}
	l.send(open(2, 10_000))
	if e := l.answer(2).GetError(); e.GetReason() != pb.Reason_REASON_QUOTA_EXCEEDED || !strings.Contains(e.GetMessage(), "3") {
		t.Errorf("one session too many: %v", e)
	}
}

func TestBadRequestsReachNeitherTheLogNorTheirNeighbours(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	l := connect(t, m)
	o := l.open(60_000)
	before := m.Status()
	eventually(t, func() error { // the answer comes before the status that counts the session
		if before = m.Status(); before.Counts.Sessions != 1 {
			return fmt.Errorf("%d sessions", before.Counts.Sessions)
		}
		return nil
	})
	var frame []*pb.ClientRequest
	for i, name := range []string{"", "a//b", "a\nb", "_sys/x", strings.Repeat("x", 513), "e\u0301"} {
		frame = append(frame, acquire(uint64(i+10), o.GetSession(), 1, name))
	}
	frame = append(frame, open(16, 0), open(17, 1<<63), keepAlive(18, "zz", 1), acquire(19, o.GetSession(), 1), &pb.ClientRequest{Tag: 20, Session: o.GetSession()})
	l.send(frame...)
	for range frame {
		if e := l.event(); e.GetError() == nil {
			t.Errorf("tag %d was answered %v", e.GetTag(), e)
		}
	}
	after := m.Status()
	if after.Applied != before.Applied || after.Counts != before.Counts {
		t.Errorf("the log went from %d to %d", before.Applied, after.Applied)
	}
	l.granted(o.GetSession(), 1, "x")
}

func TestAStreamAboveItsRateIsRefusedNewWorkButMayGiveBack(t *testing.T) {
	t.Parallel()
	l := connect(t, startCluster(t, clusterOptions{nodes: 1, limits: service.Limits{RequestsPerSecond: 200}}).leader())
	o := l.open(60_000)
	held := l.granted(o.GetSession(), 1, "x")
	var flood []*pb.ClientRequest
	for i := range 300 {
		flood = append(flood, acquire(uint64(i+100), o.GetSession(), uint64(i+2), "y"))
	}
	flood = append(flood, release(1, o.GetSession(), held))
	l.send(flood...)
	overloaded := 0
	for range len(flood) + 1 { // the end of the claim is a change too
		e := l.event()
		switch {
		case e.GetChange().GetState() == pb.ClaimState_CLAIM_STATE_RELEASED:
		case e.GetTag() == 1:
			if e.GetClaim().GetState() != pb.ClaimState_CLAIM_STATE_RELEASED {
				t.Errorf("the release was answered %v", e)
			}
		case e.GetError().GetReason() == pb.Reason_REASON_OVERLOADED:
			overloaded++
		default:
			t.Errorf("got %v", e)
		}
	}
	if overloaded != 300 {
		t.Errorf("%d of 300 were refused", overloaded)
	}
}

func TestAConnectionAboveItsRateIsRefusedUnaryCallsButMayGiveBack(t *testing.T) {
	t.Parallel()
	m := startCluster(t, clusterOptions{nodes: 1, limits: service.Limits{RequestsPerSecond: 5}}).leader()
	a := newCaller(t, locks(t, m), &pb.OpenSessionRequest{TtlMs: 60_000})
	held := a.take("x")
	refused := 0
	for range 100 {
		if _, err := a.acquire(patient(t), try("x")); protocol.FromErr(err).GetReason() == pb.Reason_REASON_OVERLOADED {
			refused++
		}
	}
	if refused == 0 {
		t.Error("100 calls in a row and none was refused")
	}
	if err := a.release(held); err != nil {
		t.Errorf("a release above the rate: %v", err)
	}
	newCaller(t, locks(t, m), &pb.OpenSessionRequest{}) // another connection is not affected
}

func TestAClientThatDoesNotReadIsDropped(t *testing.T) {
	t.Parallel()
	m := startCluster(t, clusterOptions{nodes: 1, limits: service.Limits{QueuedReplies: 100}}).leader()
	l := connect(t, m)
	o := l.open(60_000)
	sent := make(chan struct{})
	go func() { // until the service stops reading, too
		defer close(sent)
		for i := range 10_000 {
			frame := make([]*pb.ClientRequest, 80)
			for j := range frame {
				frame[j] = acquire(uint64(i), o.GetSession(), 1, "\x01"+strings.Repeat("x", 60))
			}
			if l.grpc.Send(&pb.ClientFrame{Requests: frame}) != nil {
				return
			}
		}
	}()
	eventually(t, func() error {
		if n := m.Status().Replica.Attached; n != 0 {
			return fmt.Errorf("%d sessions are still attached", n)
		}
		return nil
	})
	wantReason(t, l.end(), pb.Reason_REASON_OVERLOADED)
	<-sent
}

func TestStoppingEndsStreamsAndCallsWithUnavailable(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	l := connect(t, m)
	o := l.open(60_000)
	l.granted(o.GetSession(), 1, "x")
	idle := connect(t, m)
	idle.open(60_000)
	a := newCaller(t, locks(t, m), &pb.OpenSessionRequest{})
	call := make(chan error, 1)
	go func() {
		_, err := a.acquire(patient(t), &pb.AcquireRequest{Spec: &pb.ClaimSpec{Names: []string{"x"}}})
		call <- err
	}()
	waitForWaiters(t, a.api, "x", 1)

	stopped := make(chan struct{})
	go func() { m.stop(); close(stopped) }()
	for _, err := range []error{l.end(), idle.end(), <-call} {
		wantReason(t, err, pb.Reason_REASON_UNAVAILABLE)
	}
	select {
	case <-stopped:
	case <-time.After(patience):
		t.Error("the service does not stop")
	}
	_, err := a.api.OpenSession(patient(t), &pb.OpenSessionRequest{})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("after the end a call ended with %v", err)
	}
}

func TestABigFrameEndsTheStream(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	tiny := make([]*pb.ClientRequest, protocol.MaxFrameRequests+1)
	for i := range tiny {
		tiny[i] = &pb.ClientRequest{}
	}
	l := connect(t, m)
	l.send(tiny...)
	wantReason(t, l.end(), pb.Reason_REASON_QUOTA_EXCEEDED)

	l = connect(t, m)
	l.send(acquire(1, "", 1, strings.Repeat("x", protocol.MaxFrameBytes)))
	if err := l.end(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a frame that is too long ended the stream with %v", err)
	}

	l = connect(t, m) // one request above its own bound does not end the stream
	l.send(acquire(1, "", 1, strings.Repeat("x", protocol.MaxRequestBytes)))
	if e := l.answer(1).GetError(); e.GetReason() != pb.Reason_REASON_QUOTA_EXCEEDED {
		t.Errorf("got %v", e)
	}
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	t.Parallel()
	l := connect(t, startNode(t))
	o := l.open(60_000)
	r := acquire(1, o.GetSession(), 1, "x")
	// Field 2047, of a later version.
	r.ProtoReflect().SetUnknown([]byte{0xfa, 0x7f, 0x02, 'h', 'i'})
	b, err := proto.Marshal(r)
	if err != nil || proto.Unmarshal(b, r) != nil {
		t.Fatal("the field does not survive encoding")
	}
	l.send(r)
	if c := l.answer(1).GetClaim(); c.GetState() != pb.ClaimState_CLAIM_STATE_GRANTED {
		t.Errorf("got %v", c)
	}
}
