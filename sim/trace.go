package sim

import (
	"fmt"
	"hash"
	"hash/fnv"
	"time"
)

// traceLines is how many of the last lines a report keeps.
const traceLines = 120

// A trace is the running hash of everything that happened, and its last lines.
type trace struct {
	hash  hash.Hash64
	lines [traceLines]string
	n     int
	buf   []byte
}

func newTrace() *trace { return &trace{hash: fnv.New64a()} }

// note adds a line.
func (t *trace) note(now time.Duration, format string, args ...any) {
	t.buf = fmt.Appendf(t.buf[:0], "%10.4f ", now.Seconds())
	t.buf = fmt.Appendf(t.buf, format, args...)
	t.hash.Write(t.buf)
	t.lines[t.n%traceLines] = string(t.buf)
	t.n++
}

// mix adds to the hash what is too frequent for a line.
func (t *trace) mix(now time.Duration, a, b, c uint64) {
	t.buf = t.buf[:0]
	for _, v := range [...]uint64{uint64(now), a, b, c} {
		t.buf = append(t.buf, byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56))
	}
	t.hash.Write(t.buf)
}

// last returns the last lines, oldest first.
func (t *trace) last() []string {
	var out []string
	for i := max(0, t.n-traceLines); i < t.n; i++ {
		out = append(out, t.lines[i%traceLines])
	}
	return out
}
