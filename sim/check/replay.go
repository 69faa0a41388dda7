package check

import (
	"fmt"
	"slices"

	"github.com/lockstep-dev/lockstep/server/command"
)

// A replay compares one entry with the table, command by command.
type replay struct {
	*table
	count  func(string)
	term   uint64
	index  uint64
	events []command.Event // Granted ones not matched yet
	owed   []*claim        // claims whose change must be reported to the owner
	ended  []*session      // sessions whose end must be reported to the owner
	early  func(*session) *Violation
	queued map[queuePlace]bool // by this entry
}

func (b *Book) replay(a Applied) *Violation {
	if len(a.Output.Results) != len(a.Entry.Commands) {
		return broken(WrongAnswer, "%d results for %d commands at %d", len(a.Output.Results), len(a.Entry.Commands), a.Index)
	}
	r := &replay{table: b.table, count: b.count, term: a.Term, index: a.Index, early: b.early, queued: map[queuePlace]bool{}}
	for _, e := range a.Output.Events {
		if r.event++; e.Number != r.event {
			return broken(History, "event %d follows event %d at %d", e.Number, r.event-1, a.Index)
		}
		switch e.Kind {
		case command.EventGranted:
			r.events = append(r.events, e)
		case command.EventQueued:
			if v := r.queuedOnce(e); v != nil {
				return v
			}
		}
	}
	for i, c := range a.Entry.Commands {
		if v := r.command(c, &a.Output.Results[i]); v != nil {
			v.Detail = fmt.Sprintf("%s [%T at %d.%d]", v.Detail, c, a.Index, i)
			return v
		}
	}
	if len(r.events) > 0 {
		return r.unexpected(r.events[0], nil)
	}
	if v := r.told(a.Output.Changes); v != nil {
		return v
	}
	b.remember(a.Index)
	return nil
}

// queuedOnce checks that a claim enters the queue of a name only once, ever.
func (r *replay) queuedOnce(e command.Event) *Violation {
	place := queuePlace{e.Claim, e.Name}
	if r.claim(e.Claim) != nil || r.queued[place] {
		return broken(AtMostOnce, "claim %v entered the queue of %q again", e.Claim, e.Name)
	}
	r.queued[place] = true
	return nil
}

type queuePlace struct {
	claim command.ClaimID
	name  string
}

// Whether the owners of granted claims have their answer at once, or must get a change.
const (
	toldAlready  = false
	owedToOwners = true
)

// match takes the Granted events of one command and compares them with what the rule grants.
func (r *replay) match(granted []*claim, owed bool) *Violation {
	want := map[*claim]int{}
	n := 0
	for _, c := range granted {
		want[c] = len(c.spec.Names)
		n += len(c.spec.Names)
	}
	for range n {
		if len(r.events) == 0 {
			break
		}
		e := r.events[0]
		c := r.claim(e.Claim)
		if c == nil || want[c] == 0 || !slices.Contains(c.spec.Names, e.Name) {
			return r.unexpected(e, granted)
		}
		r.events = r.events[1:]
		want[c]--
		if v := r.token(c, e); v != nil {
			return v
		}
	}
	for _, c := range granted {
		r.noteGrant(c, owed)
		if want[c] > 0 {
			return broken(LostWakeUp, "claim %v for %q is first and fits, and was not granted", c.id, c.spec.Names)
		}
	}
	return nil
}

func (r *replay) noteGrant(c *claim, owed bool) {
	if owed {
		r.owed = append(r.owed, c)
		r.count(GrantedWaiter)
	}
	if len(c.spec.Names) > 1 {
		r.count(GrantedMulti)
	}
	if c.spec.Mode == command.Permits {
		r.count(GrantedPermits)
	}
}

// token checks the token of one grant of one name.
func (r *replay) token(c *claim, e command.Event) *Violation {
	n := r.name(e.Name)
	switch {
	case c.token != 0 && c.token != e.Token:
		return broken(Tokens, "claim %v has two tokens, %d and %d", c.id, c.token, e.Token)
	case c.token != 0:
		return nil
	case c.spec.Mode == command.Shared:
		for _, h := range n.holders {
			if h == c || h.state != command.Granted || h.token == 0 {
				continue
			}
			if h.token != e.Token {
				return broken(Tokens, "shared claim %v on %q got %d beside a holder with %d", c.id, e.Name, e.Token, h.token)
			}
			c.token = e.Token
			r.count(SharedToken)
			return nil
		}
	}
	if c.spec.Mode != command.Permits || e.Token != 0 {
		if e.Token <= r.top {
			return broken(Tokens, "claim %v on %q got %d, and %d had been issued", c.id, e.Name, e.Token, r.top)
		}
		r.top = e.Token
	}
	c.token = e.Token
	return nil
}

// unexpected says which promise a grant breaks that the rule does not allow. granted is what the
// rule grants instead.
func (r *replay) unexpected(e command.Event, granted []*claim) *Violation {
	c, s := r.claim(e.Claim), r.sessions[e.Claim.Session]
	switch {
	case s == nil || s.ended != command.OK:
		return broken(DeadSession, "%q was granted to %v", e.Name, e.Claim)
	case c == nil:
		return broken(WrongAnswer, "%q was granted to %v, which asked for nothing", e.Name, e.Claim)
	case c.state != command.Queued:
		return broken(AtMostOnce, "%q was granted to %v again: it was %s", e.Name, e.Claim, stateName(c.state))
	}
	n := r.name(e.Name)
	for _, g := range granted {
		if slices.Contains(g.spec.Names, e.Name) {
			return broken(FIFO, "%q was granted to %v before %v", e.Name, e.Claim, g.id)
		}
	}
	if len(n.queue) > 0 && n.queue[0] != c {
		return broken(FIFO, "%q was granted to %v before %v", e.Name, e.Claim, n.queue[0].id)
	}
	return broken(Exclusion, "%q was granted to %v beside %v", e.Name, e.Claim, ids(n.holders))
}

// told checks that every change that a client did not cause was reported to it.
func (r *replay) told(changes []command.Change) *Violation {
	for i := range changes {
		ch := &changes[i]
		s := r.sessions[ch.Session]
		if s == nil {
			return broken(Changes, "a change of session %v, which nobody opened", ch.Session)
		}
		if ch.Number != s.change+1 {
			return broken(Changes, "session %v went from change %d to %d", ch.Session, s.change, ch.Number)
		}
		s.change = ch.Number
		if c := s.claims[ch.Claim.Seq]; c != nil && ch.Claim.State.Final() {
			c.over = ch.Number
		}
	}
	for _, c := range r.owed {
		if !slices.ContainsFunc(changes, func(ch command.Change) bool {
			return ch.Session == c.id.Session && (ch.Claim.Seq == c.id.Seq || ch.Ended != command.OK)
		}) {
			return broken(LostWakeUp, "nobody told %v that it was %s at %d", c.id, stateName(c.state), r.index)
		}
	}
	for _, s := range r.ended {
		if !slices.ContainsFunc(changes, func(ch command.Change) bool { return ch.Session == s.id && ch.Ended == s.ended }) {
			return broken(LostWakeUp, "nobody told session %v of its end at %d", s.id, r.index)
		}
	}
	return nil
}

func ids(claims []*claim) []command.ClaimID {
	var out []command.ClaimID
	for _, c := range claims {
		out = append(out, c.id)
	}
	return out
}

var stateNames = [...]string{"nothing", "queued", "granted", "released", "cancelled", "busy", "out of its wait", "revoked", "expired"}

func stateName(s command.State) string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("in state %d", s)
}
