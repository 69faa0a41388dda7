package replica

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"github.com/lockstep-dev/lockstep/server/machine"
)

// maxParked bounds the requests of one session parked behind its Attach.
const maxParked = 1_024

// maxParkedAll bounds the parked requests of all sessions.
const maxParkedAll = 65_536

// A stream is a client's stream, or a unary call, with what is bound to it here.
type stream struct {
	id       StreamID
	gone     bool
	sessions map[machine.SessionID]bool // attached
	follows  []machine.ClaimID          // claims whose changes are reported to it
}

// A binding is what a session is bound to here.
type binding struct {
	stream  *stream // nil: none
	number  uint64  // of the last attachment
	follows []follow
	pending int // commands in flight: the applied state does not show their effect
}

// A follow is a unary call that waits for a claim.
type follow struct {
	seq    uint64
	stream *stream
}

// A parkKey is a session attaching to a stream.
type parkKey struct {
	stream  StreamID
	session machine.SessionID
}

func sortedParkKeys(m map[parkKey][]Request) []parkKey {
	return slices.SortedFunc(maps.Keys(m), func(a, b parkKey) int {
		return cmp.Or(cmp.Compare(a.stream, b.stream), compareIDs(a.session, b.session))
	})
}

func compareIDs(a, b machine.SessionID) int { return bytes.Compare(a[:], b[:]) }

func (l *leadership) streamOf(id StreamID) *stream {
	s, ok := l.streams[id]
	if !ok {
		s = &stream{id: id, sessions: make(map[machine.SessionID]bool)}
		l.streams[id] = s
	}
	return s
}

func (l *leadership) bindingOf(id machine.SessionID) *binding {
	b, ok := l.sessions[id]
	if !ok {
		b = &binding{}
		l.sessions[id] = b
	}
	return b
}

// bind attaches a session to a stream, and detaches it from any other.
func (l *leadership) bind(id machine.SessionID, to *stream, number uint64) {
	b := l.bindingOf(id)
	if b.stream != nil {
		delete(b.stream.sessions, id)
	}
	b.stream, b.number = to, number
	to.sessions[id] = true
}

// sessionOver tells the calls that still follow a claim of an ended session how it ended, and
// forgets the session unless its owner may still confirm the end of its closing claims.
func (r *Replica) sessionOver(id machine.SessionID) {
	b, ok := r.lead.sessions[id]
	if !ok {
		return
	}
	for _, f := range b.follows {
		state := machine.Cancelled
		switch r.machine.SessionEnd(id) {
		case machine.SessionExpired:
			state = machine.Expired
		case machine.SessionRevoked:
			state = machine.Revoked
		}
		r.tell(f.stream, id, Changed{machine.ClaimStatus{Seq: f.seq, State: state}})
		f.stream.unfollow(machine.ClaimID{Session: id, Seq: f.seq})
	}
	b.follows = nil
	if _, leaving := r.machine.Leaving(id); leaving {
		return
	}
	if b.stream != nil {
		delete(b.stream.sessions, id)
	}
	b.stream, b.number = nil, 0
	r.lead.dropIdle(id, b)
}

// tellOther tells the stream of a session that the session is over for its client, because of a
// request on another stream.
func (r *Replica) tellOther(b *binding, from *stream, session machine.SessionID, why string) {
	if b.stream != nil && b.stream != from {
		r.tell(b.stream, session, Ended{Code: machine.SessionUnknown, Reason: why})
	}
}

// dropIdle forgets a binding that binds nothing.
func (l *leadership) dropIdle(id machine.SessionID, b *binding) {
	if b.stream == nil && b.number == 0 && b.pending == 0 && len(b.follows) == 0 {
		delete(l.sessions, id)
	}
}

func (s *stream) unfollow(id machine.ClaimID) {
	s.follows = slices.DeleteFunc(s.follows, func(c machine.ClaimID) bool { return c == id })
}

// gone removes a stream. Queued claims that only this stream followed are cancelled: nobody would
// learn of the grant.
func (r *Replica) gone(id StreamID) {
	l := &r.lead
	s, ok := l.streams[id]
	if !ok {
		return
	}
	s.gone = true
	delete(l.streams, id)
	// Each session is looked at on its own: the order does not matter.
	for session := range s.sessions {
		l.sessions[session].stream = nil
	}
	for _, claim := range s.follows {
		b := l.bindingOf(claim.Session)
		b.follows = slices.DeleteFunc(b.follows, func(f follow) bool { return f.stream == s })
		if !b.followed(claim.Seq) {
			r.endAbandoned(claim)
		}
		l.dropIdle(claim.Session, b)
	}
}

func (b *binding) followed(seq uint64) bool {
	return slices.ContainsFunc(b.follows, func(f follow) bool { return f.seq == seq })
}

// endAbandoned ends a queued claim that nobody is waiting for. It does not log a Cancel: a retry of
// the call may come before it in the log and be granted, and that grant must not be taken back
// unnoticed.
func (r *Replica) endAbandoned(id machine.ClaimID) {
	if c, ok := r.machine.Claim(id); !ok || c.State != machine.Queued {
		return
	}
	p := &pending{command: machine.EndWait{Term: r.lead.term, Claims: []machine.ClaimID{id}}, session: id.Session}
	if !r.lead.queue.admit(p, r.cfg.QueueCommands, r.now) {
		r.log.Warn("queue full: an abandoned claim stays until its session ends", "session", id.Session.String(), "seq", id.Seq)
	}
}

// tellChange reports to the stream of a session, and to the calls that follow the claim, a change
// that their client did not cause.
func (r *Replica) tellChange(c *machine.Change) {
	b, ok := r.lead.sessions[c.Session]
	if !ok {
		return
	}
	if c.Ended != machine.OK {
		if b.stream != nil {
			r.tell(b.stream, c.Session, Ended{Code: c.Ended, By: c.By, Reason: c.Reason})
		}
		for _, f := range b.follows {
			r.tell(f.stream, c.Session, Changed{endedWith(f.seq, c)})
			f.stream.unfollow(machine.ClaimID{Session: c.Session, Seq: f.seq})
		}
		b.follows = nil
		return
	}
	if b.stream != nil {
		r.tell(b.stream, c.Session, Changed{c.Claim})
	}
	r.tellFollowers(b, c.Session, c.Claim, nil)
}

// endedWith returns the state of a claim that ended with its session.
func endedWith(seq uint64, c *machine.Change) machine.ClaimStatus {
	status := machine.ClaimStatus{Seq: seq, State: machine.Expired, Change: c.Number}
	if c.Ended == machine.SessionRevoked {
		status.State, status.By, status.Reason = machine.Revoked, c.By, c.Reason
	}
	return status
}

// tellFollowers notifies the calls that follow a claim, except the one that caused the change, and
// stops following a claim that is over.
func (r *Replica) tellFollowers(b *binding, session machine.SessionID, claim machine.ClaimStatus, but *stream) {
	if len(b.follows) == 0 {
		return
	}
	for _, f := range b.follows {
		if f.seq == claim.Seq && f.stream != but && f.stream != b.stream {
			r.tell(f.stream, session, Changed{claim})
		}
	}
	if !claim.State.Final() {
		return
	}
	b.follows = slices.DeleteFunc(b.follows, func(f follow) bool {
		if f.seq == claim.Seq {
			f.stream.unfollow(machine.ClaimID{Session: session, Seq: f.seq})
			return true
		}
		return false
	})
}

// tell sends what the client did not ask for.
func (r *Replica) tell(s *stream, session machine.SessionID, a Answer) {
	if !s.gone {
		r.reply(s.id, 0, session, a)
	}
}

func (r *Replica) reply(id StreamID, tag uint64, session machine.SessionID, a Answer) {
	r.out.Replies = append(r.out.Replies, Reply{Stream: id, Tag: tag, Session: session, Answer: a})
}

// refuse answers a request that has no effect, or none for now.
func (r *Replica) refuse(q *Request, why Refusal) {
	r.reply(q.Stream, q.Tag, q.Session, Refused{Reason: why})
}

// refusePending answers a command that is waiting for its batch or in flight. uncertain says that
// it may still be applied.
func (r *Replica) refusePending(p *pending, why Refusal, uncertain bool) {
	if p.from == nil || p.from.gone {
		return
	}
	if p.group != nil {
		if p.group.left < 0 {
			return
		}
		p.group.left = -1 // one answer for all of them
	}
	r.reply(p.from.id, p.tag, p.session, Refused{Reason: why, Uncertain: uncertain})
}
