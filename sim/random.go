package sim

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// A random is a stream of random numbers for one concern.
type random struct{ *rand.Rand }

// stream derives the stream of a concern from the seed.
func stream(seed uint64, concern string) random {
	return random{rand.New(rand.NewPCG(seed, hashOf(concern)))}
}

func hashOf(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}

// chance returns true with probability p.
func (r random) chance(p float64) bool { return r.Float64() < p }

// between draws uniformly from [low, high).
func (r random) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(r.Int64N(int64(high-low)))
}

// about draws from the exponential distribution with this mean, cut off at ten times the mean.
func (r random) about(mean time.Duration) time.Duration {
	return time.Duration(min(r.ExpFloat64(), 10) * float64(mean))
}

// skewed draws from [low, high) so that each factor of two is equally likely.
func (r random) skewed(low, high time.Duration) time.Duration {
	d := low
	for d < high && r.chance(0.7) {
		d *= 2
	}
	return min(r.between(d/2, d)+low/2, high)
}

// pick draws one of the values.
func pick[T any](r random, values ...T) T { return values[r.IntN(len(values))] }

// entropy returns a reader of random bytes for crypto/rand.Reader and the secrets of sessions.
func entropy(seed uint64, concern string) *rand.ChaCha8 {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	binary.LittleEndian.PutUint64(key[8:], hashOf(concern))
	return rand.NewChaCha8(key)
}
