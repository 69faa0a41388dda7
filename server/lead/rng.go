package lead

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// rng is splitmix64: enough for jitter, and the same on every platform.
type rng struct{ state uint64 }

func newRNG(seed io.Reader) (rng, error) {
	var b [8]byte
	if _, err := io.ReadFull(seed, b[:]); err != nil {
		return rng{}, fmt.Errorf("lead: reading randomness: %w", err)
	}
	return rng{binary.BigEndian.Uint64(b[:])}, nil
}

func (r *rng) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// jitter returns a duration from 0 to most.
func (r *rng) jitter(most time.Duration) time.Duration {
	return time.Duration(r.next() % (uint64(most) + 1))
}
