package lease

import (
	"math/rand/v2"
	"time"
)

// A Backoff determines how long to wait between tries. The ceiling starts at Base and doubles up to
// Max; each wait is drawn uniformly from the upper half of the range up to the ceiling, so that
// many clients do not retry in step. It is not safe for concurrent use.
type Backoff struct {
	// Base is the first ceiling. Default: 50 ms.
	Base time.Duration
	// Max is the largest ceiling. Default: 2 s. It is at least Base.
	Max time.Duration
	// Rand draws from [0, 1). Default: math/rand/v2.
	Rand func() float64

	ceiling time.Duration // of the next wait; zero means Base
}

// Next returns the time to wait before the next try.
func (b *Backoff) Next() time.Duration {
	lowest, highest := b.bounds()
	ceiling := max(b.ceiling, lowest)
	b.ceiling = min(2*ceiling, highest)
	draw := rand.Float64
	if b.Rand != nil {
		draw = b.Rand
	}
	half := ceiling / 2
	return half + time.Duration(draw()*float64(ceiling-half))
}

// Reset starts over after a successful try: the next wait is a first one.
func (b *Backoff) Reset() { b.ceiling = 0 }

func (b *Backoff) bounds() (lowest, highest time.Duration) {
	lowest, highest = b.Base, b.Max
	if lowest <= 0 {
		lowest = 50 * time.Millisecond
	}
	if highest <= 0 {
		highest = 2 * time.Second
	}
	return lowest, max(lowest, highest)
}
