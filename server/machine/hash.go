package machine

import (
	"math/bits"

	"github.com/lockstep-dev/lockstep/server/command"
)

// hashPrime spreads the bits of a word over the upper half of the product. It is odd, so every step
// of the hash is invertible and loses nothing.
const hashPrime = 0x9e3779b97f4a7c15

// hashWord adds one word to a running hash. The hash is part of the replicated state, so neither it
// nor the constant may change without a new feature level.
func hashWord(h, x uint64) uint64 {
	h = (bits.RotateLeft64(h, 29) ^ x) * hashPrime
	return h ^ h>>32
}

// hashText adds a string and its length to a running hash.
func hashText(h uint64, s string) uint64 {
	h = hashWord(h, uint64(len(s)))
	for len(s) >= 8 {
		h = hashWord(h, word(s))
		s = s[8:]
	}
	var tail uint64
	for i := range len(s) {
		tail |= uint64(s[i]) << (8 * i)
	}
	return hashWord(h, tail)
}

// hashBytes is hashText for a slice.
func hashBytes(h uint64, b []byte) uint64 {
	h = hashWord(h, uint64(len(b)))
	for len(b) >= 8 {
		h = hashWord(h, uint64(b[0])|uint64(b[1])<<8|uint64(b[2])<<16|uint64(b[3])<<24|
			uint64(b[4])<<32|uint64(b[5])<<40|uint64(b[6])<<48|uint64(b[7])<<56)
		b = b[8:]
	}
	var tail uint64
	for i := range len(b) {
		tail |= uint64(b[i]) << (8 * i)
	}
	return hashWord(h, tail)
}

func word(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func hashSession(h uint64, id command.SessionID) uint64 { return hashBytes(h, id[:]) }

func hashStatus(h uint64, c *command.ClaimStatus) uint64 {
	h = hashWord(h, c.Seq)
	h = hashWord(h, uint64(c.State)<<32|uint64(c.Position))
	h = hashWord(h, uint64(c.Token))
	return hashWord(h, c.Change)
}

// hashOutput adds everything that an entry produced to the running hash, except the events, which
// were added as bytes when they were recorded in the history.
func hashOutput(h, index uint64, out *command.Output) uint64 {
	h = hashWord(h, index)
	for i := range out.Results {
		r := &out.Results[i]
		h = hashWord(h, uint64(r.Code)<<32|uint64(r.Revoked))
		h = hashSession(h, r.Session)
		h = hashStatus(h, &r.Claim)
	}
	for i := range out.Changes {
		c := &out.Changes[i]
		h = hashSession(h, c.Session)
		h = hashWord(h, c.Number<<8|uint64(c.Ended))
		h = hashStatus(h, &c.Claim)
	}
	for _, t := range out.Timers {
		h = hashSession(h, t.Claim.Session)
		h = hashWord(h, t.Claim.Seq<<8|uint64(t.Kind))
		h = hashWord(h, uint64(t.Span))
	}
	return h
}
