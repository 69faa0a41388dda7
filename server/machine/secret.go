package machine

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
)

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

// hashes reports whether secrets are stored as hashes.
func (l *Limits) hashes() bool { return l.FeatureLevel >= SecretLevel }

// keptSecret returns what the state keeps of the secret of a new session. A command that was logged
// just before the level rose has the secret itself.
func (m *Machine) keptSecret(c *OpenSession) Secret {
	switch {
	case c.Hashed && !m.limits.hashes():
		panic(fmt.Sprintf("machine: a hashed secret at entry %d, but the cluster has feature level %d", m.index, m.limits.FeatureLevel))
	case m.limits.hashes() && !c.Hashed:
		return c.Secret.Hash()
	}
	return c.Secret
}

// hashSecrets replaces the secrets of all sessions by their hashes.
func (m *Machine) hashSecrets() {
	for i := range m.shards {
		for _, t := range [...]*table[SessionID, *session]{&m.shards[i].live, &m.shards[i].leaving} {
			for id, s := range t.m { // each on its own: the order makes no difference
				m.changing(id)
				s.secret = s.secret.Hash()
			}
		}
	}
}

// Owned reports whether the secret belongs to the session. It takes the same time for all secrets.
func (s *Session) Owned(secret *Secret) bool {
	given := *secret
	if s.hashed {
		given = given.Hash()
	}
	return subtle.ConstantTimeCompare(given[:], s.secret[:]) == 1
}
