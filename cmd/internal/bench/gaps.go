package bench

import (
	"sync"
	"time"
)

// gaps finds the longest time without a grant. It is safe for concurrent use.
type gaps struct {
	mu struct {
		sync.Mutex
		last time.Time
		gap  time.Duration
		over bool // grants after the end are not counted
	}
}

func (g *gaps) start(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.last = now
}

func (g *gaps) grant(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.noteLocked(now)
}

// end also counts the time since the last grant: an outage that lasts to the end is a gap.
func (g *gaps) end(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.noteLocked(now)
	g.mu.over = true
}

func (g *gaps) noteLocked(now time.Time) {
	if g.mu.over || !now.After(g.mu.last) {
		return // two workers may get here in the other order
	}
	g.mu.gap = max(g.mu.gap, now.Sub(g.mu.last))
	g.mu.last = now
}

func (g *gaps) longest() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.gap
}
