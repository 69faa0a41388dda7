package machine

import "github.com/lockstep-dev/lockstep/server/command"

// A SessionView is a live session as others see it, without its secret.
type SessionView struct {
	ID             command.SessionID
	TTL            command.Millis
	ClientNumbered bool
	Metadata       []command.Label
	Holding        uint32 // granted claims
	Waiting        uint32 // queued claims
	Closing        uint32 // claims that are over but whose names are not free yet
}

// maxCountedClaims bounds the claims that one call of Sessions counts, which takes some 100 us, so
// that a page of sessions with thousands of claims each does not stall the loop.
const maxCountedClaims = 16_384

// Sessions returns the live sessions whose ids sort after `after`, in order: at most limit of them,
// and fewer where they have very many claims, but at least one if there is any. More reports
// whether further sessions follow.
func (m *Machine) Sessions(after command.SessionID, limit int) (sessions []SessionView, more bool) {
	counted := 0
	m.byID.AscendGreaterOrEqual(&session{id: after}, func(s *session) bool {
		if s.id == after {
			return true
		}
		counted += len(s.claims) + len(s.closing)
		if len(sessions) >= limit || len(sessions) > 0 && counted > maxCountedClaims {
			more = true
			return false
		}
		sessions = append(sessions, s.view())
		return true
	})
	return sessions, more
}

func (s *session) view() SessionView {
	v := SessionView{
		ID: s.id, TTL: s.ttl, ClientNumbered: s.numbered, Metadata: s.metadata, Closing: uint32(len(s.closing)),
	}
	for _, c := range s.claims {
		if c.granted {
			v.Holding++
		} else {
			v.Waiting++
		}
	}
	return v
}
