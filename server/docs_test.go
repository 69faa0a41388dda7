package server

import (
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/service"
)

type fixedStatus node.Status

func (s fixedStatus) Status() node.Status { return node.Status(s) }

// busyStatus and busyTally have a value for every metric.
func busyStatus() fixedStatus {
	return fixedStatus{Role: node.Leader, Members: []node.MemberStatus{{Name: "n1", Self: true}, {Name: "n2"}}}
}

func busyTally() *tally {
	t := newTally()
	t.replied([]lead.Reply{{Answer: lead.Refused{Reason: lead.Overloaded}}}, 0)
	t.ports = portCollector{"client": service.NewPort(nil, service.Bounds{Connections: 1}, slog.New(slog.DiscardHandler))}
	return t
}

func TestEveryMetricIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	families, err := registry(busyStatus(), busyTally(), ".").Gather()
	if err != nil {
		t.Fatal(err)
	}
	ours := 0
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "lockstep_") {
			continue
		}
		ours++
		if !strings.Contains(string(page), "`"+f.GetName()+"`") {
			t.Errorf("docs/metrics.md lacks %s", f.GetName())
		}
	}
	if documented := strings.Count(string(page), "`lockstep_"); documented != ours {
		t.Errorf("docs/metrics.md has %d metrics, there are %d", documented, ours)
	}
}

func TestTwoServersOfAProcessHaveMetricsOfTheirOwn(t *testing.T) {
	for range 2 {
		var r *prometheus.Registry = registry(fixedStatus{}, newTally(), "")
		if _, err := r.Gather(); err != nil {
			t.Error(err)
		}
	}
}

func TestReadinessSaysWhatIsWrong(t *testing.T) {
	healthy := node.Status{Role: node.Leader, Leader: 1, Serving: true}
	slow := healthy
	slow.DiskBusy = 2 * slowDisk
	noFloor := healthy
	noFloor.Replica.GrantsHeld = "the clock is before the build"
	restored := healthy
	restored.Replica.GrantsHeld, restored.Replica.GrantsHeldFor = "the cluster was restored", 211_500*time.Millisecond
	for says, st := range map[string]node.Status{
		"starting":         {},
		"no leader":        {Role: node.Follower},
		"no quorum":        {Role: node.Leader, Leader: 1},
		"the disk":         slow,
		"before the build": noFloor,
		"the cluster was restored; at most 212 s left": restored,
	} {
		if got := strings.Join(problemsOf(checks(st)), "\n"); !strings.Contains(got, says) {
			t.Errorf("got %q, want it to say %q", got, says)
		}
	}
	if got := problemsOf(checks(healthy)); len(got) != 0 {
		t.Errorf("a healthy node is said to have %v", got)
	}
}

func TestAFullFileSystemIsNotReady(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		free, size uint64
		known, bad bool
	}{
		{10 * mib, 100_000 * mib, true, true},
		{65 * mib, 100_000 * mib, true, false},
		{10 * mib, 64 * mib, true, false},
		{3 * mib, 64 * mib, true, true},
		{0, 0, false, false},
	} {
		if got := checkSpace(c.free, c.size, c.known).problem; (got != "") != c.bad {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestReadinessTellsOfEveryCheckWhenAsked(t *testing.T) {
	w := httptest.NewRecorder()
	ready(fixedStatus{Role: node.Follower}, "")(w, httptest.NewRequest("GET", "/readyz?verbose", nil))
	want := "[+] started: ok\n[-] leader: no leader is known: too few nodes can reach each other\n[+] quorum: ok\n[+] grants: ok\n[+] disk: ok\n[+] space: ok\nnot ready\n"
	if got := w.Body.String(); got != want || w.Code != 503 {
		t.Errorf("%d\n%s", w.Code, got)
	}
}

func TestAnswersAndEventsAreCounted(t *testing.T) {
	ms := func(n int) lead.Time { return lead.Time(n) * lead.Time(time.Millisecond) }
	y := newTally()
	y.replied([]lead.Reply{
		{Received: ms(1), Answer: lead.Claimed{Claim: command.ClaimStatus{State: command.Granted}}},
		{Received: ms(1), Answer: lead.Claimed{Claim: command.ClaimStatus{State: command.Busy}}},
		{Answer: lead.Changed{Claim: command.ClaimStatus{State: command.WaitEnded}}},
		{Answer: lead.Refused{Reason: lead.RefusedByMachine, Code: command.Lost}},
	}, ms(4))
	y.refusedBefore(pb.Reason_REASON_INVALID_NAME)
	id := command.ClaimID{Seq: 1}
	y.count([]command.Event{
		{Kind: command.EventQueued, Claim: id, Wall: 1000},
		{Kind: command.EventGranted, Claim: id, Wall: 3000, Token: 1},
		{Kind: command.EventExpired, Claim: id, Token: 1},
		{Kind: command.EventExpired, Claim: command.ClaimID{Seq: 2}},
	})
	scrape := httptest.NewRecorder()
	promhttp.HandlerFor(registry(busyStatus(), y, ""), promhttp.HandlerOpts{}).ServeHTTP(scrape, httptest.NewRequest("GET", "/", nil))
	for _, line := range []string{
		"lockstep_grant_seconds_sum 0.003", "lockstep_wait_seconds_sum 2", "lockstep_failed_tries_total 2",
		`lockstep_rejected_requests_total{reason="LOST"} 1`, `lockstep_rejected_requests_total{reason="INVALID_NAME"} 1`, `lockstep_lost_grants_total{reason="expired"} 1`, "lockstep_expired_total 2",
	} {
		if !strings.Contains(scrape.Body.String(), line+"\n") {
			t.Errorf("no %q", line)
		}
	}
	if len(y.waiting) != 0 {
		t.Errorf("%d waiters are still timed", len(y.waiting))
	}
}
