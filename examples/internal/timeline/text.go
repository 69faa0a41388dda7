package timeline

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// MinWidth is the minimum number of columns for [Chart.Text].
const MinWidth = 60

// Text draws the chart in ASCII, in lines of at most width columns. A width below [MinWidth] counts
// as MinWidth. The label of a span that is too short for it is omitted.
func (c Chart) Text(width int) string {
	names := 0
	for _, l := range c.Lanes {
		names = max(names, len(l.Name))
	}
	columns := max(width, MinWidth) - names - 2
	var out strings.Builder
	write := func(name string, line []byte) {
		out.WriteString(strings.TrimRight(fmt.Sprintf("%-*s  %s", names, name, line), " ") + "\n")
	}
	write("", c.textAxis(columns))
	for _, l := range c.Lanes {
		for i, line := range c.textLane(l, columns) {
			name := l.Name
			if i > 0 {
				name = ""
			}
			write(name, line)
		}
	}
	return out.String()
}

func blank(columns int) []byte { return bytes.Repeat([]byte{' '}, columns) }

// textAxis draws the whole seconds.
func (c Chart) textAxis(columns int) []byte {
	line := blank(columns)
	for at := time.Duration(0); at <= c.End; at += time.Second {
		label := fmt.Sprintf("%d s", at/time.Second)
		copy(line[min(scale(at, c.End, columns), columns-len(label)):], label)
	}
	return line
}

// textLane draws the spans, if any, in the first line, and the marks below them.
func (c Chart) textLane(l Lane, columns int) [][]byte {
	var lines [][]byte
	if len(l.Spans) > 0 {
		lines = append(lines, c.textSpans(l.Spans, columns))
	}
	marks := l.sorted()
	var boxes []box
	for _, m := range marks {
		b, _ := labelBox(scale(m.At, c.End, columns-1), len(m.Label)+2, columns)
		boxes = append(boxes, b)
	}
	row, count := rows(boxes)
	first := len(lines)
	for range count {
		lines = append(lines, blank(columns))
	}
	for i, m := range marks {
		at := scale(m.At, c.End, columns-1)
		line := lines[first+row[i]]
		line[at] = looks[m.Kind].sign
		if _, right := labelBox(at, len(m.Label)+2, columns); right {
			copy(line[min(at+2, columns):], m.Label)
		} else {
			copy(line[at-1-len(m.Label):], m.Label)
		}
	}
	return lines
}

func (c Chart) textSpans(spans []Span, columns int) []byte {
	line := blank(columns)
	for _, s := range spans {
		from, to := scale(s.From, c.End, columns), scale(s.To, c.End, columns)
		if to-from < 2 {
			continue // too short to show anything
		}
		body := line[from:to]
		copy(body, bytes.Repeat([]byte{looks[s.Kind].fill}, len(body)))
		body[0], body[len(body)-1] = '[', ']'
		if len(s.Label) <= len(body)-2 {
			copy(body[1:], s.Label)
		}
	}
	return line
}
