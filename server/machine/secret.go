package machine

import (
	"crypto/subtle"
	"fmt"

	"github.com/lockstep-dev/lockstep/server/command"
)

// hashes reports whether secrets are stored as hashes.
func hashes(l *command.Limits) bool { return l.FeatureLevel >= command.SecretLevel }

// keptSecret returns what the state keeps of the secret of a new session. A command that was logged
// just before the level rose has the secret itself.
func (m *Machine) keptSecret(c *command.OpenSession) command.Secret {
	switch {
	case c.Hashed && !hashes(&m.limits):
		panic(fmt.Sprintf("machine: a hashed secret at entry %d, but the cluster has feature level %d", m.index, m.limits.FeatureLevel))
	case hashes(&m.limits) && !c.Hashed:
		return c.Secret.Hash()
	}
	return c.Secret
}

// hashSecrets replaces the secrets of all sessions by their hashes.
func (m *Machine) hashSecrets() {
	for i := range m.shards {
		for _, t := range [...]*table[command.SessionID, *session]{&m.shards[i].live, &m.shards[i].leaving} {
			for id, s := range t.m { // each on its own: the order makes no difference
				m.changing(id)
				s.secret = s.secret.Hash()
			}
		}
	}
}

// Owned reports whether the secret belongs to the session. It takes the same time for all secrets.
func (s *Session) Owned(secret *command.Secret) bool {
	given := *secret
	if s.hashed {
		given = given.Hash()
	}
	return subtle.ConstantTimeCompare(given[:], s.secret[:]) == 1
}
