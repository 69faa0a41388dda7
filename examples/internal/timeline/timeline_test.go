package timeline_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/examples/internal/timeline"
)

const ms = time.Millisecond

func story() timeline.Chart {
	return timeline.Chart{
		Title: "A pauses & B writes",
		End:   5 * time.Second,
		Lanes: []timeline.Lane{
			{Name: "A", Spans: []timeline.Span{{200 * ms, 3200 * ms, timeline.Holds, "token 41"}}, Marks: []timeline.Mark{{4600 * ms, timeline.Event, "lost"}}},
			{Name: "process of A", Spans: []timeline.Span{{1000 * ms, 4500 * ms, timeline.Frozen, "frozen"}}},
			{Name: "B", Spans: []timeline.Span{{500 * ms, 3500 * ms, timeline.Waits, "waits"}, {3500 * ms, 4000 * ms, timeline.Holds, "token 42"}}},
			{Name: "guarded", Marks: []timeline.Mark{{4500 * ms, timeline.Refused, "A: 41 < 42"}, {3700 * ms, timeline.Wrote, "B: 150"}}},
		},
	}
}

func TestTheTextShowsTheLanesInOrder(t *testing.T) {
	t.Parallel()
	const want = `
              0 s          1 s          2 s          3 s          4 s        5 s
A               [token 41==============================]
                                                                         | lost
process of A               [frozen~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~]
B                   [waits.................................][====]
guarded                                                       o B: 150
                                                             A: 41 < 42 X
`
	if got := "\n" + story().Text(80); got != want {
		t.Errorf("got:%swant:%s", got, want)
	}
}

func TestNoLineIsWiderThanRequested(t *testing.T) {
	t.Parallel()
	c := story()
	c.Lanes[3].Marks = append(c.Lanes[3].Marks, timeline.Mark{At: time.Hour, Kind: timeline.Wrote, Label: strings.Repeat("long ", 20)},
		timeline.Mark{At: -time.Hour, Kind: timeline.Wrote, Label: strings.Repeat("long ", 20)})
	c.Lanes[0].Spans = append(c.Lanes[0].Spans, timeline.Span{From: 4 * time.Second, To: time.Hour, Kind: timeline.Cut, Label: strings.Repeat("x", 200)})
	for _, width := range []int{-1, 0, 60, 80, 133} {
		for line := range strings.Lines(c.Text(width)) {
			if got := len(strings.TrimSuffix(line, "\n")); got > max(width, timeline.MinWidth) {
				t.Errorf("width %d: a line of %d columns: %s", width, got, line)
			}
		}
	}
}

func TestAnEmptyChartIsDrawn(t *testing.T) {
	t.Parallel()
	if got := (timeline.Chart{}).Text(80); got != "  0 s\n" {
		t.Errorf("got %q", got)
	}
}

func TestTheSVGIsWellFormedAndHasEveryLabel(t *testing.T) {
	t.Parallel()
	picture := timeline.SVG(story(), story())
	var text strings.Builder
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		if data, ok := token.(xml.CharData); ok {
			text.Write(data)
		}
	}
	for _, want := range []string{"A pauses & B writes", "token 41", "frozen", "waits", "A: 41 < 42", "B: 150"} {
		if strings.Count(text.String(), want) != 2 {
			t.Errorf("%q appears %d times, want 2", want, strings.Count(text.String(), want))
		}
	}
}
