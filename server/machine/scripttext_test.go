package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/lockstep-dev/lockstep/server/command"
)

func (s *stage) name(id command.ClaimID) string {
	name := s.names[id.Session]
	if id.Seq > 1 {
		return fmt.Sprintf("%s.%d", name, id.Seq)
	}
	return name
}

func (s *stage) event(ev *command.Event, out *command.Output) {
	freed := "freed"
	if ev.Token == 0 {
		freed = "left the queue"
	}
	for _, timer := range out.Timers {
		if timer.Kind == command.DelayStarted && timer.Claim == ev.Claim {
			freed = fmt.Sprintf("closed for %v", duration(timer.Span))
		}
	}
	switch ev.Kind {
	case command.EventGranted:
		s.say("granted %s to %s token %d", ev.Name, s.name(ev.Claim), ev.Token)
	case command.EventQueued:
		s.say("queued %s by %s%s", ev.Name, s.name(ev.Claim), s.place(ev.Claim, out))
	case command.EventExpired:
		s.say("session %s expired: %s %s", s.names[ev.Claim.Session], ev.Name, freed)
	case command.EventRevoked:
		s.say("revoked %s from %s by %s, %s: %s", ev.Name, s.name(ev.Claim), ev.By, ev.Reason, freed)
	default:
		reason := ""
		if ev.Reason != "" {
			reason = ": " + ev.Reason
		}
		s.say("%v %s by %s%s", ev.Kind, ev.Name, s.name(ev.Claim), reason)
	}
}

// place shows the position and the blockers in the answer to the claim.
func (s *stage) place(id command.ClaimID, out *command.Output) string {
	for i := range out.Results {
		c := &out.Results[i].Claim
		if c.Seq == id.Seq && c.State == command.Queued {
			return fmt.Sprintf(" position %d%s", c.Position, s.behind(c.Blockers))
		}
	}
	return ""
}

func (s *stage) behind(blockers []command.Holder) string {
	if len(blockers) == 0 {
		return ""
	}
	var list []string
	for _, h := range blockers {
		list = append(list, s.holder(h))
	}
	return " behind " + strings.Join(list, ", ")
}

func duration(m command.Millis) time.Duration { return time.Duration(m) * time.Millisecond }

func refusal(r command.Result) string {
	if r.Limit != "" {
		return fmt.Sprintf("%v, %s", r.Code, r.Limit)
	}
	return r.Code.String()
}

// result shows an answer, unless an event has shown the same.
func (s *stage) result(c command.Command, r *command.Result, told map[command.ClaimID]bool) {
	switch c := c.(type) {
	case command.OpenSession:
		if r.Code == command.OK {
			name := s.opening
			s.ids[name], s.names[r.Session] = r.Session, name
			s.byService[r.Session] = !c.ClientNumbered
			s.say("session %s opened", name)
		}
	case command.Acquire:
		if r.Code == command.OK && !told[command.ClaimID{Session: c.Session, Seq: r.Claim.Seq}] {
			s.say("answer: %s", s.status(&r.Claim))
		}
	case command.Cancel:
		if r.Code == command.OK && !told[command.ClaimID{Session: c.Session, Seq: c.Seq}] {
			s.say("answer: %s", s.status(&r.Claim))
		}
	case command.Release:
		if r.Code == command.OK && !told[command.ClaimID{Session: c.Session, Seq: c.Seq}] {
			s.say("answer: %s", s.status(&r.Claim))
		}
	case command.Revoke:
		s.say("revoked claims: %d", r.Revoked)
	}
	if r.Code != command.OK {
		s.say("refused: %s", refusal(*r))
	}
}

func (s *stage) status(c *command.ClaimStatus) string {
	text := c.State.String()
	if c.Token != 0 {
		text += fmt.Sprintf(" token %d", c.Token)
	}
	if c.Position != 0 {
		text += fmt.Sprintf(" position %d", c.Position)
	}
	if c.By != "" {
		text += fmt.Sprintf(" by %s, %s", c.By, c.Reason)
	}
	return text + s.behind(c.Blockers)
}

func (s *stage) change(c *command.Change) {
	if c.Ended != command.OK {
		by := ""
		if c.By != "" {
			by = fmt.Sprintf(" by %s, %s", c.By, c.Reason)
		}
		s.say("  change %d of session %s: %v%s", c.Number, s.names[c.Session], c.Ended, by)
		return
	}
	s.say("  change %d of session %s: claim %d %s", c.Number, s.names[c.Session], c.Claim.Seq, s.status(&c.Claim))
}

func (s *stage) timer(timer command.Timer) {
	length := ""
	if timer.Span != 0 {
		length = fmt.Sprintf(" %v", duration(timer.Span))
	}
	s.say("  timer: %v, %s%s", timer.Kind, s.name(timer.Claim), length)
}

func (s *stage) holder(h command.Holder) string {
	text := s.name(h.Claim)
	if h.Token != 0 {
		text += fmt.Sprintf(" (token %d)", h.Token)
	}
	if h.Closing {
		text += " closing"
	}
	return text
}

func (s *stage) read(t *testing.T, d *datadriven.TestData) {
	switch d.Cmd {
	case "show":
		s.lock(s.m.Lock(valuesOf(d, "lock")[0], arg(t, d, "holders", 100), arg(t, d, "waiters", 100)))
	case "list":
		locks, more := s.m.Locks(arg(t, d, "prefix", ""), arg(t, d, "after", ""), arg(t, d, "limit", 100))
		for _, l := range locks {
			s.lock(l)
		}
		if more {
			s.say("and more")
		}
	case "history":
		events, complete := s.m.History(valuesOf(d, "lock")[0], arg(t, d, "limit", 100))
		for _, ev := range events {
			token := ""
			if ev.Token != 0 {
				token = fmt.Sprintf(" token %d", ev.Token)
			}
			s.say("%d: %v %s, %s%s%s", ev.Number, ev.Kind, ev.Name, s.name(ev.Claim), token, labels(ev.Metadata))
		}
		if !complete {
			s.say("older ones may be missing")
		}
	case "changes":
		for _, c := range s.m.ChangedSince(s.session(t, d), arg(t, d, "since", uint64(0))) {
			s.say("change %d: claim %d %s", c.Change, c.Seq, s.status(&c))
		}
	case "claim":
		if c, ok := s.m.Claim(s.claim(t, d)); ok {
			s.say("%s", s.status(&c))
		} else {
			s.say("unknown")
		}
	case "timers":
		timers := s.m.Timers()
		slices.SortStableFunc(timers, func(a, b command.Timer) int { return strings.Compare(s.name(a.Claim), s.name(b.Claim)) })
		for _, timer := range timers {
			s.timer(timer)
		}
	case "counts":
		c := s.m.Counts()
		s.say("%d sessions, %d names, %d holders, %d waiters, %d closing, next token %d",
			c.Sessions, c.Names, c.Holders, c.Waiters, c.Closing, c.NextToken)
	}
}

func labels(list []command.Label) string {
	var b strings.Builder
	for _, l := range list {
		fmt.Fprintf(&b, " %s=%s", l.Key, l.Value)
	}
	return b.String()
}

func (s *stage) lock(l command.Lock) {
	if l.Holding+l.Waiting == 0 {
		s.say("%s: free", l.Name)
		return
	}
	used := ""
	if l.Capacity > 0 {
		used = fmt.Sprintf(", %d of %d held", l.Used, l.Capacity)
	}
	s.say("%s: %v%s", l.Name, l.Mode, used)
	for _, h := range l.Holders {
		s.say("  held by %s%s", s.holder(h), labels(h.Metadata))
	}
	if l.Holding > len(l.Holders) {
		s.say("  and by %d more", l.Holding-len(l.Holders))
	}
	for _, h := range l.Waiters {
		s.say("  waiting: %s", s.holder(h))
	}
	if l.Waiting > len(l.Waiters) {
		s.say("  and %d more", l.Waiting-len(l.Waiters))
	}
}
