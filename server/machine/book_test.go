package machine

import (
	"fmt"
	"slices"

	"github.com/lockstep-dev/lockstep/server/command"
)

// A book judges the outputs of a machine from outside, by the promises alone. It knows nothing
// about how the machine is built.
type book struct {
	open    map[command.SessionID]bool
	claims  map[command.ClaimID]*booked
	tokens  map[string]command.Token     // the last token of each name
	queues  map[string][]command.ClaimID // the waiters of each name, in request order
	changes map[command.SessionID]uint64
	event   uint64
	heard   map[command.SessionID]heard
	ended   map[command.ClaimID]uint64 // claims whose end is reported to the owner: the change
	nonces  map[nonceOf]uint64         // the claim that each one made
	level   uint32                     // the feature level before the entry
}

type nonceOf struct {
	session command.SessionID
	nonce   string
}

// keepsLevel is the feature level from which sessions keep what their clients need.
const keepsLevel = 2

// heard is the most that the logged commands of a session may have said.
type heard struct{ floor, seen uint64 }

type booked struct {
	names   []string
	mode    command.Mode
	token   command.Token
	granted bool
	over    bool
}

func newBook() *book {
	return &book{
		open:    map[command.SessionID]bool{},
		claims:  map[command.ClaimID]*booked{},
		tokens:  map[string]command.Token{},
		queues:  map[string][]command.ClaimID{},
		changes: map[command.SessionID]uint64{},
		heard:   map[command.SessionID]heard{},
		ended:   map[command.ClaimID]uint64{},
		nonces:  map[nonceOf]uint64{},
	}
}

// remembered checks that the holder of what the service ended can still learn of it.
func (b *book) remembered(m *Machine, e *command.Entry, out *command.Output) error {
	for _, c := range out.Changes {
		s, live := m.Session(c.Session)
		if c.Claim.State.Final() && live && (s.ClientNumbered || c.Claim.State == command.Revoked) {
			b.ended[command.ClaimID{Session: c.Session, Seq: c.Claim.Seq}] = c.Number
		}
	}
	for i, c := range e.Commands {
		switch c := c.(type) {
		case command.Acquire:
			if err := b.nonce(&c, &out.Results[i]); err != nil {
				return err
			}
			b.hear(m, c.Session, c.Floor, c.Seen)
		case command.Cancel:
			b.hear(m, c.Session, c.Floor, c.Seen)
		}
	}
	b.level = m.Limits().FeatureLevel
	for id, change := range b.ended {
		s, live := m.Session(id.Session)
		if !live || b.mayForget(s, id.Seq, change) {
			delete(b.ended, id)
			continue
		}
		h := b.heard[id.Session]
		if c, ok := m.Claim(id); !ok || c.Change != change {
			return fmt.Errorf("claim %v, ended by change %d, is forgotten with floor %d and seen %d", id, change, h.floor, h.seen)
		}
		if !slices.ContainsFunc(m.ChangedSince(id.Session, change-1), func(c command.ClaimStatus) bool { return c.Seq == id.Seq }) {
			return fmt.Errorf("a client that resumes is not told of the end of %v", id)
		}
	}
	return nil
}

// mayForget reports whether the end of a claim, reported by this change, may be forgotten.
func (b *book) mayForget(s Session, seq, change uint64) bool {
	h := b.heard[s.ID]
	if s.ClientNumbered {
		return seq < h.floor && change <= h.seen
	}
	return b.level < keepsLevel || change <= h.seen
}

// nonce checks that no nonce that the client has not let go of makes a second claim.
func (b *book) nonce(c *command.Acquire, r *command.Result) error {
	if c.Nonce == "" || r.Code != command.OK || b.level < keepsLevel {
		return nil
	}
	key := nonceOf{c.Session, c.Nonce}
	if before := b.nonces[key]; before != 0 && before != r.Claim.Seq && before >= b.heard[c.Session].floor && before >= c.Floor {
		return fmt.Errorf("nonce %q of %v made claim %d, and now %d", c.Nonce, c.Session, before, r.Claim.Seq)
	}
	b.nonces[key] = r.Claim.Seq
	return nil
}

func (b *book) hear(m *Machine, id command.SessionID, floor, seen uint64) {
	if s, live := m.Session(id); live && !s.ClientNumbered && b.level < keepsLevel {
		return
	}
	h := b.heard[id]
	b.heard[id] = heard{max(h.floor, floor), max(h.seen, min(seen, b.changes[id]))}
}

// entry records the machine's output for an entry, and returns the first broken promise.
func (b *book) entry(e *command.Entry, out *command.Output) error {
	for i, r := range out.Results {
		if _, ok := e.Commands[i].(command.OpenSession); ok && r.Code == command.OK {
			b.open[r.Session] = true
		}
	}
	for _, ev := range out.Events {
		if ev.Number != b.event+1 {
			return fmt.Errorf("event %d follows event %d", ev.Number, b.event)
		}
		b.event = ev.Number
		if err := b.happened(&ev); err != nil {
			return fmt.Errorf("%w: %+v", err, ev)
		}
	}
	for _, c := range out.Changes {
		if c.Number != b.changes[c.Session]+1 {
			return fmt.Errorf("change %d of %v follows %d", c.Number, c.Session, b.changes[c.Session])
		}
		b.changes[c.Session] = c.Number
		if c.Ended != command.OK {
			b.open[c.Session] = false
		} else if c.Claim.Change != c.Number {
			return fmt.Errorf("change %d carries %d", c.Number, c.Claim.Change)
		}
	}
	for i, r := range out.Results {
		if c, ok := e.Commands[i].(command.CloseSession); ok && r.Code == command.OK {
			b.open[c.Session] = false
		}
	}
	return nil
}

func (b *book) happened(ev *command.Event) error {
	c := b.claims[ev.Claim]
	if c == nil {
		c = &booked{mode: ev.Mode}
		b.claims[ev.Claim] = c
	}
	switch ev.Kind {
	case command.EventQueued:
		if c.granted || c.over || slices.Contains(b.queues[ev.Name], ev.Claim) {
			return fmt.Errorf("queued a second time")
		}
		b.queues[ev.Name] = append(b.queues[ev.Name], ev.Claim)
	case command.EventGranted:
		return b.granted(c, ev)
	default:
		if c.over && slices.Contains(c.names, ev.Name) {
			return fmt.Errorf("over a second time")
		}
		c.over = true
		b.leave(ev)
		c.names = append(c.names, ev.Name)
		if ev.Token != c.token {
			return fmt.Errorf("its token was %d", c.token)
		}
	}
	return nil
}

func (b *book) leave(ev *command.Event) {
	q := b.queues[ev.Name]
	if i := slices.Index(q, ev.Claim); i >= 0 {
		b.queues[ev.Name] = slices.Delete(q, i, i+1)
	}
}

func (b *book) granted(c *booked, ev *command.Event) error {
	last := b.tokens[ev.Name]
	switch {
	case c.over || c.granted && c.token != ev.Token:
		return fmt.Errorf("granted a second time")
	case !b.open[ev.Claim.Session]:
		return fmt.Errorf("granted to a session that has ended")
	case ev.Token == 0 || ev.Token < last || ev.Token == last && ev.Mode != command.Shared:
		return fmt.Errorf("the last token of this name was %d", last)
	}
	if q := b.queues[ev.Name]; len(q) > 0 && q[0] != ev.Claim {
		return fmt.Errorf("granted before %v, which came earlier", q[0])
	}
	b.leave(ev)
	c.granted, c.token = true, ev.Token
	b.tokens[ev.Name] = ev.Token
	return nil
}
