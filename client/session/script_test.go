package session_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/proto"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client/session"
)

// TestScripts runs testdata/scripts: what happens to a session, what it sends ("->") and the
// updates it gives.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		p := &play{t: t, s: session.New(session.Config{TTL: 10 * time.Second})}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return p.step(d)
		})
	})
}

// A play is a session under a script.
type play struct {
	t   *testing.T
	s   *session.Session
	now time.Duration
}

func (p *play) step(d *datadriven.TestData) string {
	if e := p.event(d); e != nil {
		e.Tag, e.Session = p.number(d, "tag"), p.s.ID()
		p.s.Receive(p.now, e)
		return p.output()
	}
	switch d.Cmd {
	case "connect":
		p.s.Connected(p.now)
	case "disconnect":
		p.s.Disconnected(p.now)
	case "wait": // ticks every 100 ms
		span, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(p.t, "%v", err)
		}
		for end := p.now + span; p.now < end; {
			p.now += 100 * time.Millisecond
			p.s.Tick(p.now)
		}
	case "acquire":
		p.acquire(d)
	case "cancel":
		p.s.Cancel(p.now, p.number(d, "seq"))
	case "release":
		p.s.Release(p.now, p.number(d, "seq"))
	case "close":
		p.s.Close(p.now)
	case "detach": // and continue as another process with the handle
		held, ok := p.s.Detach(p.now, p.number(d, "seq"))
		if !ok {
			return "refused\n"
		}
		if got := p.output(); got != "nothing\n" || !p.s.IsOver() {
			d.Fatalf(p.t, "a detached session says %q", got)
		}
		p.s = session.Restore(session.Config{}, held)
		return fmt.Sprintf("attach above %d, seen %d, token %d\n", held.Attach, held.Seen, held.Token)
	case "state":
		return fmt.Sprintf("at %v: valid until %v, seen %d, floor %d, %d claims\n", p.now, p.s.ValidUntil(), p.s.Seen(), p.s.Floor(), p.s.Claims())
	default:
		d.Fatalf(p.t, "unknown command %q", d.Cmd)
	}
	return p.output()
}

func (p *play) acquire(d *datadriven.TestData) {
	times := 1
	if d.HasArg("times") {
		times = int(p.number(d, "times"))
	}
	for range times {
		spec := &pb.ClaimSpec{Names: []string{d.CmdArgs[0].Key}}
		if d.HasArg("try") {
			spec.WaitMs = proto.Uint64(0)
		}
		p.s.Acquire(p.now, spec)
	}
}

// event returns the service event that a command stands for, if any.
func (p *play) event(d *datadriven.TestData) *pb.ServerEvent {
	switch d.Cmd {
	case "opened":
		ttl := uint64(10_000)
		if d.HasArg("ttl_ms") {
			ttl = p.number(d, "ttl_ms")
		}
		return &pb.ServerEvent{Body: &pb.ServerEvent_Opened{Opened: &pb.StreamOpened{Session: "s1", Secret: []byte("secret"), TtlMs: ttl, GraceMs: 500}}}
	case "attached":
		return &pb.ServerEvent{Body: &pb.ServerEvent_Attached{Attached: &pb.StreamAttached{Change: p.number(d, "change"), TtlMs: 10_000, GraceMs: 500}}}
	case "kept":
		return &pb.ServerEvent{Body: &pb.ServerEvent_Kept{Kept: &pb.StreamKept{Number: p.number(d, "number"), Change: p.number(d, "change")}}}
	case "answer":
		return &pb.ServerEvent{Body: &pb.ServerEvent_Claim{Claim: p.status(d)}}
	case "change":
		return &pb.ServerEvent{Body: &pb.ServerEvent_Change{Change: p.status(d)}}
	case "closed":
		return &pb.ServerEvent{Body: &pb.ServerEvent_Closed{Closed: &pb.StreamClosed{}}}
	case "ended":
		return &pb.ServerEvent{Body: &pb.ServerEvent_Ended{Ended: &pb.SessionEnded{Reason: p.reason(d), By: "ops"}}}
	case "error":
		e := &pb.Error{Reason: p.reason(d), RetryAfterMs: p.number(d, "retry_after_ms"), Attached: p.number(d, "attached")}
		d.MaybeScanArgs(p.t, "field", &e.Field)
		d.MaybeScanArgs(p.t, "leader", &e.LeaderAddress)
		return &pb.ServerEvent{Body: &pb.ServerEvent_Error{Error: e}}
	}
	return nil
}

func (p *play) status(d *datadriven.TestData) *pb.ClaimStatus {
	st := &pb.ClaimStatus{Seq: p.number(d, "seq"), Token: p.number(d, "token"), Change: p.number(d, "change"), Position: uint32(p.number(d, "position"))}
	var state string
	d.ScanArgs(p.t, "state", &state)
	v, ok := pb.ClaimState_value["CLAIM_STATE_"+state]
	if !ok {
		d.Fatalf(p.t, "unknown state %q", state)
	}
	st.State = pb.ClaimState(v)
	d.MaybeScanArgs(p.t, "by", &st.By)
	return st
}

func (p *play) reason(d *datadriven.TestData) pb.Reason {
	var reason string
	d.ScanArgs(p.t, "reason", &reason)
	v, ok := pb.Reason_value["REASON_"+reason]
	if !ok {
		d.Fatalf(p.t, "unknown reason %q", reason)
	}
	return pb.Reason(v)
}

// number returns an argument, or zero if it is missing.
func (p *play) number(d *datadriven.TestData, key string) uint64 {
	if !d.HasArg(key) {
		return 0
	}
	var text string
	d.ScanArgs(p.t, key, &text)
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		d.Fatalf(p.t, "%s: %v", key, err)
	}
	return n
}

func (p *play) output() string {
	requests, updates := p.s.Drain()
	var b strings.Builder
	for i, r := range requests {
		if skipped := len(requests) - 4; skipped > 1 && i >= 2 && i < len(requests)-2 {
			if i == 2 {
				fmt.Fprintf(&b, "-> ... %d more\n", skipped)
			}
			continue
		}
		fmt.Fprintf(&b, "-> %d: %s\n", r.GetTag(), request(r))
	}
	for _, u := range updates {
		b.WriteString(update(u) + "\n")
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func request(r *pb.ClientRequest) string {
	switch b := r.GetBody().(type) {
	case *pb.ClientRequest_Open:
		return fmt.Sprintf("open ttl_ms=%d", b.Open.GetTtlMs())
	case *pb.ClientRequest_Attach:
		return fmt.Sprintf("attach number=%d seen=%d", b.Attach.GetNumber(), b.Attach.GetSeen())
	case *pb.ClientRequest_KeepAlive:
		return fmt.Sprintf("keepalive number=%d", b.KeepAlive.GetNumber())
	case *pb.ClientRequest_Acquire:
		return fmt.Sprintf("acquire seq=%d floor=%d seen=%d %s", b.Acquire.GetSeq(), b.Acquire.GetFloor(), b.Acquire.GetSeen(), strings.Join(b.Acquire.GetSpec().GetNames(), " "))
	case *pb.ClientRequest_Cancel:
		return fmt.Sprintf("cancel seq=%d floor=%d seen=%d", b.Cancel.GetSeq(), b.Cancel.GetFloor(), b.Cancel.GetSeen())
	case *pb.ClientRequest_Release:
		return fmt.Sprintf("release seq=%d token=%d", b.Release.GetSeq(), b.Release.GetToken())
	default:
		return "close"
	}
}

func update(u session.Update) string {
	s := u.Kind.String()
	if u.Seq != 0 {
		s += fmt.Sprintf(" seq=%d", u.Seq)
	}
	if u.Token != 0 {
		s += fmt.Sprintf(" token=%d", u.Token)
	}
	if u.Position != 0 {
		s += fmt.Sprintf(" position=%d", u.Position)
	}
	if u.Reason != 0 {
		s += ": " + u.Reason.String()
	}
	if u.By != "" {
		s += " by " + u.By
	}
	if u.Leader != "" {
		s += " leader=" + u.Leader
	}
	if u.Err != nil {
		s += " " + u.Err.GetReason().String()
	}
	return s
}
