//go:build linux

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client"
)

func TestWhatIsWaitedForIsSaidWhenItIsNewAndSparinglyAfterwards(t *testing.T) {
	wall := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	held := func(host string) lockReport {
		return lockReport{HolderCount: 1, Holders: []claimReport{{Since: instant{wall.Add(-3 * time.Minute)}, Metadata: map[string]string{"host": host, "pid": "7"}}}}
	}
	var n narrator
	for i, c := range []struct {
		at    time.Duration
		state lockReport
		ahead int
		want  string
	}{
		{time.Second, held("h"), 2, "waiting for a/b: held by host h, pid 7 for 3m0s, 2 ahead"},
		{6 * time.Second, held("h"), 2, ""},
		{11 * time.Second, held("h"), 1, "waiting for a/b: held by host h, pid 7 for 3m0s, 1 ahead"},
		{16 * time.Second, held("g"), 0, "waiting for a/b: held by host g, pid 7 for 3m0s, next in the queue"},
		{75 * time.Second, held("g"), 0, ""},
		{77 * time.Second, held("g"), 0, "waiting for a/b: held by host g, pid 7 for 3m0s, next in the queue"},
		{140 * time.Second, held("g"), 0, ""}, // the interval between reminders doubles
		{198 * time.Second, held("g"), 0, "waiting for a/b: held by host g, pid 7 for 3m0s, next in the queue"},
		{199 * time.Second, lockReport{}, -1, "waiting for a/b: not held"},
	} {
		if got := n.waiting(c.at, "a/b", c.state, c.ahead, wall); got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}

func TestAnOutageIsSaidFromTheSecondLookOn(t *testing.T) {
	down := &client.OutageError{Answers: []client.EndpointAnswer{{Endpoint: "n1:7400", State: client.Refuses}, {Endpoint: "n4:7400", State: client.NoLeader}}}
	var n narrator
	const want = "n1:7400 refuses connections, n4:7400 knows no leader, still trying"
	for i, c := range []struct {
		e    *client.OutageError
		want string
	}{{down, ""}, {nil, ""}, {down, ""}, {down, want}, {down, ""}} {
		if got := n.outage(time.Duration(i)*time.Second, c.e); got != c.want {
			t.Errorf("look %d: %q, want %q", i, got, c.want)
		}
	}
}

func TestVerboseSaysWhoHoldsTheLockAndHowManyAreAhead(t *testing.T) {
	w := newService(t)
	holder := w.start("hold", "x")
	w.eventually("held", func() bool { return strings.Contains(holder.out.String(), "held") })
	first := w.start("run", "-v", "x", "--", "true")
	w.eventually("the first waiter says so", func() bool {
		return regexp.MustCompile(fmt.Sprintf(`run: waiting for x: held by host \S+, pid %d for [0-9.ms]+, next in the queue\n`, holder.Process.Pid)).MatchString(first.err.String())
	})
	second := w.start("acquire", "--verbose", "x")
	w.eventually("the second waiter says so", func() bool {
		return strings.Contains(second.err.String(), ", 1 ahead\n")
	})
	_, quiet := w.run(CodeBusy, "run", "-w", "2", "x", "--", "true")
	if strings.Contains(quiet, "waiting for") {
		t.Errorf("without a terminal and --verbose: %q", quiet)
	}
	holder.Process.Signal(syscall.SIGTERM)
	if got := first.code(); got != 0 {
		t.Errorf("exit code %d: %s", got, first.err.String())
	}
	second.code()
}

func TestVerboseSaysWhatTheEndpointsAnswer(t *testing.T) {
	w := newService(t)
	p := w.start("show", "-v", "x", "--endpoints", "127.0.0.1:1,localhost:1", "--connect-timeout", "5")
	if got := p.code(); got != CodeUnavailable {
		t.Errorf("exit code %d", got)
	}
	lines := strings.Split(strings.TrimSpace(p.err.String()), "\n")
	if len(lines) != 2 || lines[0] != "lockstep: show: 127.0.0.1:1 refuses connections, localhost:1 refuses connections, still trying" ||
		!strings.Contains(lines[1], "all 2 endpoints refuse connections") {
		t.Errorf("stderr %q", lines)
	}
}

func TestAWatchSaysThatThereIsNoMajorityOnceAndThatItIsBack(t *testing.T) {
	var errs bytes.Buffer
	var asked atomic.Int32
	lost := client.NodeStatus{Endpoint: "n4:7400", Status: &pb.StatusResponse{Node: "n4"}}
	dead := client.NodeStatus{Endpoint: "n1:7400", Err: &client.OutageError{Answers: []client.EndpointAnswer{{Endpoint: "n1:7400", State: client.Refuses}}}}
	well := client.NodeStatus{Endpoint: "n4:7400", Status: &pb.StatusResponse{Node: "n4", Leader: "n5"}}
	synctest.Test(t, func(t *testing.T) {
		stop := (&App{Err: &errs}).sayMajority(t.Context(), func(context.Context) []client.NodeStatus {
			if n := asked.Add(1); n == 2 || n == 3 {
				return []client.NodeStatus{dead, lost}
			}
			return []client.NodeStatus{dead, well}
		})
		time.Sleep(30*time.Second + 1)
		stop()
	})
	want := "lockstep: watch: no events can occur: no majority: 1 of 2 refuses connections, 1 knows no leader; the watch continues when that is over\n" +
		"lockstep: watch: there is a leader again\n"
	if got := errs.String(); got != want {
		t.Errorf("says %q\nwant %q", got, want)
	}
}

func TestStatusTellsOfEachNodeWhatItSaysItself(t *testing.T) {
	member := func(name, role string) *pb.Member {
		return &pb.Member{Name: name, Role: role, Health: "ok", ClientAddress: name + ":7400", PeerAddress: name + ":7401"}
	}
	members := []*pb.Member{member("n1", "voter"), member("n2", "leader"), member("n3", "voter")}
	answer := func(name, leader string, applied uint64) client.NodeStatus {
		return client.NodeStatus{Endpoint: name + ":7400", Status: &pb.StatusResponse{ClusterId: "c", Node: name, Leader: leader, Term: 3, AppliedIndex: applied, Members: members, Locks: 1}}
	}
	first := answer("n1", "n2", 41)
	first.Endpoint = "localhost:7400" // not the name that the node uses for itself
	if got := unasked(first.Status, []client.NodeStatus{first}); !slices.Equal(got, []string{"n2:7400", "n3:7400"}) {
		t.Errorf("asked as well: %v", got)
	}
	silent := client.NodeStatus{Endpoint: "n3:7400", Err: &client.OutageError{Answers: []client.EndpointAnswer{{Endpoint: "n3:7400", State: client.Refuses}}}}
	report := reportStatus(first.Status, []client.NodeStatus{first}, []client.NodeStatus{answer("n2", "n2", 42), silent})
	var out bytes.Buffer
	if err := (&App{Out: &out}).writeStatus(report); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`^cluster c: leader n2, .* 1 lock, 0 waiters, 0 sessions \(reported by n2\)\n`, `\nn1 +voter +ok +41 `, `\nn2 +leader +ok +42 `, `\nn3 +voter +ok +- `,
		`\nno status of n3:7400: refuses connections\n$`} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
	if text, _ := json.Marshal(report.Members[2]); !strings.Contains(string(text), `"applied_index":null`) {
		t.Errorf("JSON %s", text)
	}

	// A node that waits says so itself, whatever the leader thinks of it.
	refused := answer("n3", "", 7)
	waits := member("n3", "voter")
	waits.Health = "n2: node n3 has an older copy of its directory"
	refused.Status.Members = []*pb.Member{member("n1", "voter"), member("n2", "voter"), waits}
	report = reportStatus(refused.Status, []client.NodeStatus{refused}, []client.NodeStatus{answer("n2", "n2", 42)})
	if got := report.Members[2].Health; report.Leader != "n2" || got != waits.Health {
		t.Errorf("leader %q, n3 is %q", report.Leader, got)
	}
}

func TestAtATerminalTheWaitingIsExplained(t *testing.T) {
	w := newService(t)
	w.run(0, "acquire", "-n", "x")
	k := w.sit()
	k.press("$LOCKSTEP run x -- true\n")
	k.expect(`lockstep: run: waiting for x: held by host \S+, pid \d+ for [0-9.ms]+, next in the queue\r\n`)
	k.press("\x03")
	k.expect(`prompt> $`)
	k.press("$LOCKSTEP run --endpoints 127.0.0.1:1 x -- true\n")
	k.expect(`lockstep: run: 127.0.0.1:1 refuses connections, still trying\r\n`)
	k.press("\x03")
	k.expect(`prompt> $`)
}
