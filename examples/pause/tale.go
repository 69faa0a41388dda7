package main

import (
	"strings"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/examples/internal/timeline"
)

// The lanes of a tale.
const (
	laneService = iota
	laneA
	laneFault
	laneB
	lanePlain
	laneGuarded
)

var laneNames = []string{"lock service", "A's lease", "A", "B's lease", "plain", "guarded"}

// A tale is what happened in a scene, for drawing.
type tale struct {
	begin time.Time
	lanes []lane
}

// A lane is the history of one actor. The last span is open until the next one begins.
type lane struct {
	spans []span
	marks []mark
}

type span struct {
	from, to time.Time
	kind     timeline.Kind
	label    string
}

type mark struct {
	at    time.Time
	kind  timeline.Kind
	label string
}

// newTale starts a tale with the current leader of the lock service; empty: none.
func newTale(leader string) *tale {
	t := &tale{begin: time.Now(), lanes: make([]lane, len(laneNames))}
	if leader != "" {
		t.leads(t.begin.Add(-time.Hour), leader)
	}
	return t
}

// enter begins a span and ends the previous one.
func (t *tale) enter(l int, at time.Time, kind timeline.Kind, label string) {
	t.over(l, at)
	t.lanes[l].spans = append(t.lanes[l].spans, span{at, time.Time{}, kind, label})
}

// over ends the last span of a lane, unless it has already ended.
func (t *tale) over(l int, at time.Time) {
	if n := len(t.lanes[l].spans); n > 0 && t.lanes[l].spans[n-1].to.IsZero() {
		t.lanes[l].spans[n-1].to = at
	}
}

func (t *tale) mark(l int, at time.Time, kind timeline.Kind, label string) {
	t.lanes[l].marks = append(t.lanes[l].marks, mark{at, kind, label})
}

func (t *tale) waits(l int, at time.Time) { t.enter(l, at, timeline.Waits, "waits") }

// tokenLabel is omitted where space is short.
const tokenLabel = "token "

func (t *tale) held(l int, at time.Time, token lockstep.Token) {
	t.enter(l, at, timeline.Holds, tokenLabel+short(token))
}

func (t *tale) leads(at time.Time, who string) { t.enter(laneService, at, timeline.Leads, who) }

// chart draws the tale so far. Open spans end with the chart.
func (t *tale) chart(title string) timeline.Chart {
	end := time.Now()
	c := timeline.Chart{Title: title, End: end.Sub(t.begin) + time.Second} // leaves room for the last label
	for i, l := range t.lanes {
		drawn := timeline.Lane{Name: laneNames[i]}
		for _, s := range l.spans {
			to := c.End
			if !s.to.IsZero() {
				to = s.to.Sub(t.begin)
			}
			from := max(s.from.Sub(t.begin), 0)
			label := s.label
			if to-from < c.End/6 {
				label = strings.TrimPrefix(label, tokenLabel)
			}
			drawn.Spans = append(drawn.Spans, timeline.Span{From: from, To: to, Kind: s.kind, Label: label})
		}
		for _, m := range l.marks {
			drawn.Marks = append(drawn.Marks, timeline.Mark{At: m.at.Sub(t.begin), Kind: m.kind, Label: m.label})
		}
		if len(drawn.Spans)+len(drawn.Marks) > 0 {
			c.Lanes = append(c.Lanes, drawn)
		}
	}
	return c
}
