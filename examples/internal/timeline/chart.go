// Package timeline draws what happened to several actors over a few seconds, as text for a terminal
// and as an SVG picture.
//
// It is a pure function of a [Chart]: it reads no clock and does no I/O.
package timeline

import (
	"slices"
	"time"
)

// A Chart is a set of lanes on one time axis, which starts at zero.
type Chart struct {
	Title string
	End   time.Duration // later spans and marks are drawn at End
	Lanes []Lane
}

// A Lane is what happened to one actor. Its spans do not overlap.
type Lane struct {
	Name  string
	Spans []Span
	Marks []Mark
}

// A Span is a state with a duration.
type Span struct {
	From, To time.Duration
	Kind     Kind
	Label    string
}

// A Mark is an event without a duration.
type Mark struct {
	At    time.Duration
	Kind  Kind
	Label string
}

// A Kind says what a span or a mark shows, and so how it is drawn.
type Kind int

const (
	// Leads is a server that is the leader.
	Leads Kind = iota
	// Waits is a client that waits for a lock.
	Waits
	// Holds is a client that believes it holds a lock.
	Holds
	// Frozen is a process that is not running.
	Frozen
	// Cut is a client that is cut off from the network.
	Cut
	// Event is any mark that is neither good nor bad.
	Event
	// Wrote is a correct write.
	Wrote
	// Damaged is a write that destroyed another.
	Damaged
	// Refused is a write that a guard rejected.
	Refused
)

// A look is how a kind is drawn.
type look struct {
	fill  byte   // of spans in text
	sign  byte   // of marks in text
	color string // of both in SVG
}

// looks are indexed by Kind.
var looks = []look{
	Leads:   {fill: '=', color: "#8aa0b8"},
	Waits:   {fill: '.', color: "#d5d9de"},
	Holds:   {fill: '=', color: "#3f9b5f"},
	Frozen:  {fill: '~', color: "#4f86d9"},
	Cut:     {fill: '/', color: "#e39b3b"},
	Event:   {sign: '|', color: "#555f6b"},
	Wrote:   {sign: 'o', color: "#3f9b5f"},
	Damaged: {sign: '!', color: "#c8322b"},
	Refused: {sign: 'X', color: "#8a4fbf"},
}

// A box is the part of a line that a label needs.
type box struct{ from, to int }

// rows assigns each box, in order of time, to the first row in which it touches no earlier box.
func rows(boxes []box) (row []int, count int) {
	var taken [][]box
	for _, b := range boxes {
		at := slices.IndexFunc(taken, func(others []box) bool {
			return !slices.ContainsFunc(others, func(o box) bool { return b.from <= o.to && o.from <= b.to })
		})
		if at < 0 {
			at, taken = len(taken), append(taken, nil)
		}
		taken[at] = append(taken[at], b)
		row = append(row, at)
	}
	return row, len(taken)
}

// labelBox returns where to put a label of the given width for the mark at position at: to the
// right of the mark, or to the left where the line ends. markFirst reports whether it is to the
// right of the mark.
func labelBox(at, width, end int) (b box, markFirst bool) {
	if at+width <= end || at < width {
		return box{at, at + width}, true
	}
	return box{at - width, at}, false
}

// scale returns the position of a time on a line of the given length.
func scale(at, end time.Duration, length int) int {
	if end <= 0 {
		return 0
	}
	return int(min(max(at, 0), end) * time.Duration(length) / end)
}

// sorted returns the marks of a lane in order of time.
func (l Lane) sorted() []Mark {
	marks := slices.Clone(l.Marks)
	slices.SortStableFunc(marks, func(a, b Mark) int { return int(a.At - b.At) })
	return marks
}
