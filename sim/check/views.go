package check

import (
	"slices"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
)

// A renewal is the newest renewal of a session whose confirmation reached its client.
type renewal struct {
	sent time.Duration
	ttl  time.Duration
}

// slack is the fraction of the TTL that clock rates may consume: the client's and the leader's are
// each within 1 % of true time.
const slack = 50

// Renewed records that a client received the confirmation of a renewal, or of an opening, that it
// sent at the true time sent.
func (b *Book) Renewed(id command.SessionID, sent, ttl time.Duration) {
	if r, ok := b.renewals[id]; !ok || sent > r.sent {
		b.renewals[id] = renewal{sent, ttl}
	}
}

// Renews checks a renewal that the leader of a term confirms now, and read at the true time read:
// at that time, no leader of a later term may have started timing the lease. Otherwise the session
// could end while its client believes in it.
func (b *Book) Renews(term uint64, read time.Duration) *Violation {
	if b.top.term > term && b.top.since < read {
		return broken(EarlyExpiry, "a renewal that came at %v was confirmed by the leader of term %d, deposed at %v by term %d",
			read, term, b.top.since, b.top.term)
	}
	return nil
}

// SetNow sets the true time of what follows.
func (b *Book) SetNow(now time.Duration) { b.table.now = now }

// early checks that a session which expires now was not renewed within its TTL, whether or not its
// client learned of the renewal.
func (b *Book) early(s *session) *Violation {
	ttl := millis(s.ttl)
	if lived := b.table.now - s.heard; s.kept && lived < ttl-ttl/slack {
		return broken(EarlyExpiry, "a renewal of session %v for %v was confirmed at %v, and it ended %v later", s.id, ttl, s.heard, lived)
	}
	r, ok := b.renewals[s.id]
	if lived := b.table.now - r.sent; ok && lived < r.ttl-r.ttl/slack {
		return broken(EarlyExpiry, "session %v was renewed for %v and ended %v after the sending", s.id, r.ttl, lived)
	}
	return nil
}

// Believed checks a claim in which its holder believes at this moment against what the service has
// granted: if the service has taken it back, nobody may hold anything that it excludes.
func (b *Book) Believed(id command.ClaimID, token command.Token) *Violation {
	c := b.table.claim(id)
	if c == nil || c.token != token || c.token == 0 && c.spec.Mode != command.Permits {
		return broken(Survival, "%v believes that it holds token %d, which is not in the log", id, token)
	}
	if c.held || c.unsafe {
		return nil
	}
	for _, text := range c.spec.Names {
		n := b.table.name(text)
		if !n.fits(c) {
			return broken(HoldersView, "%v believes in its grant of %q, it is %s, and %v was granted it", id, text, stateName(c.state), ids(n.holders))
		}
	}
	return nil
}

// Unaware checks a claim in which its holder believes under a lease that covers the changes of its
// session up to change: the end of the claim must not be among them.
func (b *Book) Unaware(id command.ClaimID, change uint64) *Violation {
	if c := b.table.claim(id); c != nil && c.over != 0 && c.over <= change {
		return broken(HoldersView, "%v is %s by change %d, and its holder believes in it with change %d", id, stateName(c.state), c.over, change)
	}
	return nil
}

// Opened checks that a session which was reported to a client as open is in the log.
func (b *Book) Opened(id command.SessionID) *Violation {
	if b.table.sessions[id] == nil {
		return broken(Survival, "session %v was opened and is not in the log", id)
	}
	return nil
}

// Told checks what was reported to a client about a claim: it must be in the log by now.
func (b *Book) Told(session command.SessionID, s command.ClaimStatus) *Violation {
	c := b.table.claim(command.ClaimID{Session: session, Seq: s.Seq})
	switch {
	case c == nil:
		return broken(Survival, "claim %d of %v was called %s and is not in the log", s.Seq, session, stateName(s.State))
	case s.State == command.Granted && (c.token != s.Token || c.state == command.Queued):
		return broken(Survival, "claim %v was called granted with %d, the log says %s with %d", c.id, s.Token, stateName(c.state), c.token)
	case s.State.Final() && c.state != s.State:
		return broken(Survival, "claim %v was called %s, the log says %s", c.id, stateName(s.State), stateName(c.state))
	}
	return nil
}

// Ended checks that a session which was reported to a client as ended has ended.
func (b *Book) Ended(id command.SessionID) *Violation {
	if s := b.table.sessions[id]; s != nil && s.ended == command.OK {
		return broken(WrongAnswer, "session %v lives and was told that it has ended", id)
	}
	return nil
}

// Remaining describes what is still held or queued, in at most a few lines for people.
func (b *Book) Remaining() []string {
	var out []string
	for _, n := range b.table.order {
		if len(n.holders)+len(n.queue) > 0 {
			out = append(out, n.describe())
		}
	}
	return out
}

func (n *name) describe() string {
	s := n.text + ":"
	for _, h := range n.holders {
		s += " held by " + describe(h)
	}
	for _, w := range n.queue {
		s += " awaited by " + describe(w)
	}
	return s
}

func describe(c *claim) string {
	return c.id.Session.String()[:12] + "/" + string(rune('0'+c.id.Seq%10)) + " (" + stateName(c.state) + ")"
}

// Holders returns the claims that hold a name and are not closing, in grant order, with their
// tokens: what an operator may revoke.
func (b *Book) Holders(text string) (ids []command.ClaimID, tokens []command.Token) {
	n := b.table.names[text]
	if n == nil {
		return nil, nil
	}
	for _, h := range n.holders {
		if h.state == command.Granted {
			ids = append(ids, h.id)
			tokens = append(tokens, h.token)
		}
	}
	return ids, tokens
}

// A held says who held a name from one index on.
type held struct {
	from   uint64
	tokens []command.Token
}

// remember records who holds each name after the entry at index, for reads.
func (b *Book) remember(index uint64) {
	for _, n := range b.table.order {
		tokens := make([]command.Token, 0, len(n.holders))
		for _, h := range n.holders {
			tokens = append(tokens, h.token)
		}
		slices.Sort(tokens)
		past := b.reads[n.text]
		if len(past) > 0 && slices.Equal(past[len(past)-1].tokens, tokens) {
			continue
		}
		b.reads[n.text] = append(past, held{index, tokens})
	}
}

// Read checks a linearizable read of a name that began when Last was begin, and is answered now.
func (b *Book) Read(text string, begin uint64, tokens []command.Token) *Violation {
	past := b.reads[text]
	slices.Sort(tokens)
	for i := len(past) - 1; i >= 0; i-- {
		if slices.Equal(past[i].tokens, tokens) {
			return nil
		}
		if past[i].from <= begin {
			return broken(StaleRead, "%q was read as held with %v, at index %d it was %v", text, tokens, begin, past[i].tokens)
		}
	}
	if len(tokens) == 0 {
		return nil
	}
	return broken(StaleRead, "%q was read as held with %v, which it never was", text, tokens)
}
