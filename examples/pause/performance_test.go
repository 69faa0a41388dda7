package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/examples/internal/account"
	"github.com/lockstep-dev/lockstep/examples/internal/stage"
	"github.com/lockstep-dev/lockstep/examples/internal/timeline"
	"github.com/lockstep-dev/lockstep/fence"
)

// A fixed account always has the same balance.
type fixed int

func (f fixed) Enter(context.Context, fence.Grant) error      { return nil }
func (f fixed) Read(context.Context) (int, error)             { return int(f), nil }
func (f fixed) Write(context.Context, fence.Grant, int) error { return nil }

func TestOnlyCorruptionWithoutAGuardAndARefusalWithOneCount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		plain, guarded int
		refusal        string
		void, held     bool
	}{
		{"as it should be", 110, 150, "too old", false, true},
		{"the plain account is whole", 150, 150, "too old", true, false},
		{"the guard let A write", 110, 110, "", false, false},
		{"A was not told", 110, 150, "", false, false},
		{"A was told and wrote", 110, 110, "too old", false, false},
	} {
		p := &performance{Stage: stage.New(io.Discard), account: account.Pair{Plain: fixed(c.plain), Guarded: fixed(c.guarded)}, refusal: c.refusal}
		err := p.judge(t.Context())
		if (err == nil) != c.held || errors.Is(err, errVoid) != c.void {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestATaleIsDrawnFromItsBeginning(t *testing.T) {
	t.Parallel()
	tale := newTale("n1")
	at := func(ms int) time.Time { return tale.begin.Add(time.Duration(ms) * time.Millisecond) }
	tale.begin = time.Now().Add(-10 * time.Second)
	tale.held(laneA, at(1000), 253122849519760)
	tale.over(laneA, at(4000))
	tale.waits(laneB, at(2000))
	tale.held(laneB, at(5000), 253122849519761)
	tale.over(laneB, at(5500))
	tale.leads(at(3000), "n2")
	tale.mark(laneGuarded, at(6000), timeline.Refused, "A is refused")
	c := tale.chart("a story")
	var got []string
	for _, l := range c.Lanes {
		for _, s := range l.Spans {
			got = append(got, l.Name+": "+s.Label)
		}
	}
	const want = "lock service: n1, lock service: n2, A's lease: token ..9760, B's lease: waits, B's lease: ..9761"
	if strings.Join(got, ", ") != want || len(c.Lanes) != 4 {
		t.Errorf("%d lanes: %s\nwant %s", len(c.Lanes), strings.Join(got, ", "), want)
	}
	if first := c.Lanes[0].Spans; first[0].From != 0 || first[0].To != 3*time.Second || first[1].To != c.End {
		t.Errorf("the leaders are drawn as %+v", first)
	}
}
