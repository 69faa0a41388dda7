package command

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// A BirthID tells one life of a cluster from every other, including lives that began with the same
// configuration. The first leader draws it at random. Zero: the cluster has none, or none has been
// applied yet.
type BirthID [16]byte

// String returns the id as 32 hexadecimal digits, or "" for zero.
func (b BirthID) String() string {
	if b == (BirthID{}) {
		return ""
	}
	return hex.EncodeToString(b[:])
}

// LateBirth is the birth of a cluster that began at a feature level without births: half of it is
// drawn, and the other half identifies the configuration that the cluster began with. That lets
// nodes that have the birth and nodes that have not reached it yet recognize each other.
func LateBirth(drawn BirthID, configured string) (b BirthID) {
	copy(b[:8], drawn[:8])
	sum := sha256.Sum256(fmt.Appendf(nil, "lockstep late birth\x00%x\x00%s", b[:8], configured))
	copy(b[8:], sum[:8])
	return b
}

// GrewFrom reports whether the birth was given to a cluster that had begun without one, from this
// configuration.
func (b BirthID) GrewFrom(configured string) bool {
	return b != BirthID{} && b == LateBirth(b, configured)
}

// BirthLevel is the feature level from which a cluster has a birth.
const BirthLevel = 2

// SetBirth names the cluster's life. The first one counts; later ones change nothing.
type SetBirth struct{ Birth BirthID }

func (SetBirth) command() {}
