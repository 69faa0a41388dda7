package command

import "crypto/sha256"

// A Secret proves that a request comes from the owner of a session.
type Secret [16]byte

// Hash returns what the log, the state and so every backup have of a secret from [SecretLevel] on:
// the first half of its SHA-256. A secret is drawn at random, so nobody can find it from its hash.
func (s Secret) Hash() Secret {
	sum := sha256.Sum256(s[:])
	return Secret(sum[:16])
}

// SecretLevel is the feature level from which secrets are stored as hashes.
const SecretLevel = 3
