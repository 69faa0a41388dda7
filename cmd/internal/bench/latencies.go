package bench

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// latencies collects durations. It is safe for concurrent use.
type latencies struct {
	mu struct {
		sync.Mutex
		spans *hdrhistogram.Histogram // microseconds; nil until the first one
	}
}

// newHistogram holds 1 µs to 10 min with three digits.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, (10 * time.Minute).Microseconds(), 3)
}

func (l *latencies) record(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.spans == nil {
		l.mu.spans = newHistogram()
	}
	us := min(max(d.Microseconds(), l.mu.spans.LowestTrackableValue()), l.mu.spans.HighestTrackableValue())
	_ = l.mu.spans.RecordValue(us) // it is within the bounds
}

func (l *latencies) addTo(all *hdrhistogram.Histogram) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.spans != nil {
		all.Merge(l.mu.spans)
	}
}
