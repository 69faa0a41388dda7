package server

import (
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-dev/lockstep/server/node"
)

type fixedStatus node.Status

func (s fixedStatus) Status() node.Status { return node.Status(s) }

func TestEveryMetricIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	families, err := registry(fixedStatus{}, newTally()).Gather()
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
		var r *prometheus.Registry = registry(fixedStatus{}, newTally())
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
	noFloor.Replica.NoFloor = "the clock is before the build"
	for says, st := range map[string]node.Status{
		"starting":         {},
		"no leader":        {Role: node.Follower},
		"no quorum":        {Role: node.Leader, Leader: 1},
		"the disk":         slow,
		"before the build": noFloor,
	} {
		if got := strings.Join(problems(st), "\n"); !strings.Contains(got, says) {
			t.Errorf("got %q, want it to say %q", got, says)
		}
	}
	if got := problems(healthy); len(got) != 0 {
		t.Errorf("a healthy node is said to have %v", got)
	}
}
