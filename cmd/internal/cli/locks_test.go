package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

func TestALockWithMoreHoldersThanAreShownSaysHowMany(t *testing.T) {
	now := time.Now()
	holder := &pb.Holder{Session: "s1", Token: 7, Mode: pb.Mode_MODE_PERMITS, Weight: 2}
	l := reportLock(&pb.Lock{
		Name: "pool", Mode: pb.Mode_MODE_PERMITS, Capacity: 5000, Holders: []*pb.Holder{holder}, HolderCount: 1200, PermitsHeld: 2400,
	})
	var shown bytes.Buffer
	l.write(&shown, now)
	for _, want := range []string{"2400 of 5000 permits held", "and 1199 more holders"} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("shown without %q:\n%s", want, &shown)
		}
	}
	var table bytes.Buffer
	ls := &lister{app: &App{Out: &table}}
	if err := ls.print([]lockReport{l}, true); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(table.String(), "and 1199 more") {
		t.Errorf("listed as\n%s", &table)
	}
	text, err := json.Marshal(l)
	if err != nil || !bytes.Contains(text, []byte(`"holder_count":1200`)) {
		t.Errorf("%s, %v", text, err)
	}

	// As sent by a node that does not count.
	old := reportLock(&pb.Lock{Name: "pool", Mode: pb.Mode_MODE_SHARED, Holders: []*pb.Holder{holder, holder}})
	shown.Reset()
	old.write(&shown, now)
	if s := shown.String(); !strings.Contains(s, "shared by 2,") || strings.Contains(s, "more") {
		t.Errorf("shown as\n%s", s)
	}
}

func TestAnotherBackendsLockHasTheModeOfItsClaims(t *testing.T) {
	exclusive, shared := lockstep.Claim{Owner: "a"}, lockstep.Claim{Owner: "b", Mode: lockstep.Shared}
	for _, c := range []struct {
		name  string
		state lockstep.State
		want  string
	}{
		{"one exclusive holder", lockstep.State{Holders: []lockstep.Claim{exclusive}, Waiters: []lockstep.Claim{shared}}, "exclusive"},
		{"one shared holder", lockstep.State{Holders: []lockstep.Claim{shared}, Waiters: []lockstep.Claim{exclusive}}, "shared"},
		{"two shared holders", lockstep.State{Holders: []lockstep.Claim{shared, shared}}, "shared"},
		{"a shared claim about to hold", lockstep.State{Waiters: []lockstep.Claim{shared}}, "shared"},
		{"nobody", lockstep.State{}, "exclusive"},
	} {
		r := reportState(c.state)
		if r.Mode != c.want {
			t.Errorf("%s: mode %q, want %q", c.name, r.Mode, c.want)
		}
		for i, h := range r.Holders {
			if want := c.state.Holders[i].Mode.String(); h.Mode != want {
				t.Errorf("%s: holder of mode %q, want %q", c.name, h.Mode, want)
			}
		}
	}
}

func TestAgesAndNumbersReadAsPeopleSayThem(t *testing.T) {
	at := time.Unix(1000, 0)
	for d, want := range map[time.Duration]string{
		3 * time.Millisecond: "3ms", 1260 * time.Millisecond: "1.3s", 62*time.Second + 400*time.Millisecond: "1m2s", 50 * time.Hour: "2d", -time.Second: "0s",
	} {
		if got := age(at.Add(d), at); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0 locks", 1: "1 lock", 2: "2 locks"} {
		if got := count(n, "lock"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	var shown bytes.Buffer
	permit := &pb.Holder{Session: "s1", Token: 7, Mode: pb.Mode_MODE_PERMITS, Weight: 1}
	reportLock(&pb.Lock{Name: "gpu", Mode: pb.Mode_MODE_PERMITS, Capacity: 3, Holders: []*pb.Holder{permit}}).write(&shown, at)
	if got := shown.String(); !strings.Contains(got, "holder    grant 7,") { // its holder sees no token
		t.Errorf("a permit is shown as %q", got)
	}
}
