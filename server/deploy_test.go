package server

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

var metricName = regexp.MustCompile(`lockstep_[a-z_]+`)

func TestDashboardAndAlertsNameMetricsThatExist(t *testing.T) {
	families, err := registry(busyStatus(), busyTally(), ".").Gather()
	if err != nil {
		t.Fatal(err)
	}
	exist := map[string]bool{}
	for _, f := range families {
		exist[f.GetName()] = true
		if f.GetType().String() == "HISTOGRAM" {
			exist[f.GetName()+"_bucket"] = true
		}
	}
	for path, least := range map[string]int{"../deploy/grafana/lockstep.json": 25, "../deploy/prometheus/alerts.yml": 12} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		named := map[string]bool{}
		for _, name := range metricName.FindAllString(string(text), -1) {
			named[name] = true
			if !exist[name] {
				t.Errorf("%s names %s, which does not exist", path, name)
			}
		}
		if len(named) < least {
			t.Errorf("%s names %d metrics, want at least %d", path, len(named), least)
		}
	}
}

func TestTheDashboardIsJSON(t *testing.T) {
	text, err := os.ReadFile("../deploy/grafana/lockstep.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			if strings.Count(target.Expr, "(") != strings.Count(target.Expr, ")") {
				t.Errorf("%s: unbalanced %s", p.Title, target.Expr)
			}
		}
	}
}
