package timeline

import (
	"fmt"
	"html"
	"strings"
	"time"
)

// The dimensions of a picture in pixels.
const (
	svgWidth  = 1000
	svgNames  = 130 // where the axis begins
	svgRight  = 20
	svgRow    = 24
	svgGap    = 12 // between lanes
	svgHead   = 58 // title and axis
	svgFoot   = 18
	svgLetter = 7 // an estimate, since no font is measured
)

// SVG draws the charts below each other in one picture. The picture is self-contained: no script,
// no font, no external style.
func SVG(charts ...Chart) string {
	var body strings.Builder
	y := 0
	for _, c := range charts {
		y = c.svg(&body, y) + svgFoot
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif" font-size="13">`+"\n", svgWidth, y) +
		fmt.Sprintf(`<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", svgWidth, y) + body.String() + "</svg>\n"
}

// svgX returns the position of a time.
func (c Chart) svgX(at time.Duration) int {
	return svgNames + scale(at, c.End, svgWidth-svgNames-svgRight)
}

// svg draws one chart from y down, and returns where it ends.
func (c Chart) svg(out *strings.Builder, y int) int {
	fmt.Fprintf(out, `<text x="12" y="%d" font-size="16" font-weight="bold" fill="#1d2733">%s</text>`+"\n", y+26, html.EscapeString(c.Title))
	top := y + svgHead
	var lanes strings.Builder
	y = top
	for _, l := range c.Lanes {
		y = c.svgLane(&lanes, l, y) + svgGap
	}
	c.svgAxis(out, top, y) // behind the lanes
	out.WriteString(lanes.String())
	return y
}

func (c Chart) svgAxis(out *strings.Builder, top, bottom int) {
	for at := time.Duration(0); at <= c.End; at += time.Second {
		x := c.svgX(at)
		fmt.Fprintf(out, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#e3e6ea"/>`+"\n", x, top-6, x, bottom-svgGap/2)
		fmt.Fprintf(out, `<text x="%d" y="%d" font-size="11" fill="#7a8591" text-anchor="middle">%d s</text>`+"\n", x, top-10, at/time.Second)
	}
}

// svgLane draws a lane from y down, and returns where it ends.
func (c Chart) svgLane(out *strings.Builder, l Lane, y int) int {
	fmt.Fprintf(out, `<text x="12" y="%d" fill="#1d2733">%s</text>`+"\n", y+16, html.EscapeString(l.Name))
	end := y
	if len(l.Spans) > 0 {
		c.svgSpans(out, l.Spans, y)
		end += svgRow
	}
	end += c.svgMarks(out, l.sorted(), end) * svgRow
	return max(end, y+svgRow)
}

func (c Chart) svgSpans(out *strings.Builder, spans []Span, y int) {
	for _, s := range spans {
		from, to := c.svgX(s.From), c.svgX(s.To)
		fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="%d" rx="3" fill="%s"/>`+"\n", from, y, max(to-from, 1), svgRow-2, looks[s.Kind].color)
		if len(s.Label)*svgLetter > to-from {
			continue
		}
		color := "#ffffff"
		if s.Kind == Waits {
			color = "#1d2733"
		}
		fmt.Fprintf(out, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", from+5, y+16, color, html.EscapeString(s.Label))
	}
}

// svgMarks draws the marks from y down, and returns how many rows they take.
func (c Chart) svgMarks(out *strings.Builder, marks []Mark, y int) int {
	var boxes []box
	for _, m := range marks {
		b, _ := labelBox(c.svgX(m.At), len(m.Label)*svgLetter+14, svgWidth)
		boxes = append(boxes, b)
	}
	row, count := rows(boxes)
	for i, m := range marks {
		x, middle := c.svgX(m.At), y+row[i]*svgRow+svgRow/2
		anchor, text := "start", x+9
		if _, right := labelBox(x, len(m.Label)*svgLetter+14, svgWidth); !right {
			anchor, text = "end", x-9
		}
		fmt.Fprintf(out, `<circle cx="%d" cy="%d" r="5" fill="%s"/>`+"\n", x, middle, looks[m.Kind].color)
		fmt.Fprintf(out, `<text x="%d" y="%d" fill="%s" text-anchor="%s">%s</text>`+"\n", text, middle+4, looks[m.Kind].color, anchor, html.EscapeString(m.Label))
	}
	return count
}
