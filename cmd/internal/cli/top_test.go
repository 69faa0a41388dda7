package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestTopKeepsTheOldestHoldersAndTheLongestQueues(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := topSample{Time: instant{begin.Add(time.Hour)}, Leader: "n1", Complete: true}
	for i, name := range []string{"a", "b", "c", "d"} {
		held := claimReport{Since: instant{begin.Add(time.Duration(i*7%4) * time.Minute)}, Token: uint64(i + 1)}
		s.add(lockReport{Name: name, Holders: []claimReport{held}, WaiterCount: uint64(i)})
	}
	s.cut(2)
	if len(s.Oldest) != 2 || s.Oldest[0].Name != "a" || s.Oldest[1].Name != "d" {
		t.Errorf("oldest: %+v", s.Oldest)
	}
	if len(s.Hottest) != 2 || s.Hottest[0].Name != "d" || s.Hottest[1].Name != "c" {
		t.Errorf("hottest: %+v", s.Hottest)
	}
	var out bytes.Buffer
	view := top{app: &App{Out: &out}, rows: 2}
	if err := view.show(&s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"leader n1", "1h0m0s    a", "3        d"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), clearScreen) {
		t.Error("a screen is cleared that is none")
	}
}

func TestTopCountsGrantsByTokens(t *testing.T) {
	begin := time.Unix(0, 0)
	before := topSample{Time: instant{begin}, nextToken: 100}
	for next, want := range map[uint64]float64{150: 25, 100: 0, 90: 0} {
		s := topSample{Time: instant{begin.Add(2 * time.Second)}, nextToken: next}
		if s.rate(&before); s.Grants != want {
			t.Errorf("token %d: %v grants/s, want %v", next, s.Grants, want)
		}
	}
}
