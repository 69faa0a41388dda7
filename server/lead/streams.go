package lead

import (
	"bytes"
	"maps"
	"slices"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// A stream is a client's stream, or a unary call, with what is bound to it here.
type stream struct {
	id       StreamID
	gone     bool
	sessions map[command.SessionID]bool // attached
	follows  []command.ClaimID          // claims whose changes are reported to it
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

func compareIDs(a, b command.SessionID) int { return bytes.Compare(a[:], b[:]) }

func (s *stream) unfollow(id command.ClaimID) {
	s.follows = slices.DeleteFunc(s.follows, func(c command.ClaimID) bool { return c == id })
}

func (b *binding) followed(seq uint64) bool {
	return slices.ContainsFunc(b.follows, func(f follow) bool { return f.seq == seq })
}

// streams has who is connected, and what is reported to whom.
type streams struct {
	out *outbox
	of  map[StreamID]*stream
	// sessions has those that a stream or a follower is bound to, or that have commands in flight.
	sessions map[command.SessionID]*binding
}

func newStreams(out *outbox) streams {
	return streams{out: out, of: make(map[StreamID]*stream), sessions: make(map[command.SessionID]*binding)}
}

// known reports whether a stream has asked for something here and is not gone.
func (t *streams) known(id StreamID) bool { return t.of[id] != nil }

func (t *streams) stream(id StreamID) *stream {
	s, ok := t.of[id]
	if !ok {
		s = &stream{id: id, sessions: make(map[command.SessionID]bool)}
		t.of[id] = s
	}
	return s
}

func (t *streams) binding(id command.SessionID) *binding {
	b, ok := t.sessions[id]
	if !ok {
		b = &binding{}
		t.sessions[id] = b
	}
	return b
}

// attached reports whether a session is bound to a stream.
func (t *streams) attached(id command.SessionID, to StreamID) bool {
	b := t.sessions[id]
	return b != nil && b.stream != nil && b.stream.id == to
}

// count returns the number of sessions that are bound to a stream.
func (t *streams) count() (n int) {
	for _, s := range t.of { // in any order: this is a sum
		n += len(s.sessions)
	}
	return n
}

// bind attaches a session to a stream, and detaches it from any other.
func (t *streams) bind(id command.SessionID, to *stream, number uint64) {
	b := t.binding(id)
	if b.stream != nil {
		delete(b.stream.sessions, id)
	}
	b.stream, b.number = to, number
	to.sessions[id] = true
}

// settle counts a command of a session as done.
func (t *streams) settle(id command.SessionID) {
	if b, ok := t.sessions[id]; ok {
		b.pending--
		t.dropIdle(id, b)
	}
}

// settled reports whether no command of a session is in flight.
func (t *streams) settled(id command.SessionID) bool {
	b := t.sessions[id]
	return b == nil || b.pending == 0
}

// dropIdle forgets a binding that binds nothing.
func (t *streams) dropIdle(id command.SessionID, b *binding) {
	if b.stream == nil && b.number == 0 && b.pending == 0 && len(b.follows) == 0 {
		delete(t.sessions, id)
	}
}

// over tells the calls that still follow a claim of an ended session how it ended, and forgets the
// session unless its owner may still confirm the end of its closing claims.
func (t *streams) over(id command.SessionID, m *machine.Machine) {
	b, ok := t.sessions[id]
	if !ok {
		return
	}
	for _, f := range b.follows {
		state := command.Cancelled
		switch m.SessionEnd(id) {
		case command.SessionExpired:
			state = command.Expired
		case command.SessionRevoked:
			state = command.Revoked
		}
		t.out.tell(f.stream, id, Changed{command.ClaimStatus{Seq: f.seq, State: state}})
		f.stream.unfollow(command.ClaimID{Session: id, Seq: f.seq})
	}
	b.follows = nil
	if _, leaving := m.Leaving(id); leaving {
		return
	}
	if b.stream != nil {
		delete(b.stream.sessions, id)
	}
	b.stream, b.number = nil, 0
	t.dropIdle(id, b)
}

// gone removes a stream, and returns the claims that only this stream followed.
func (t *streams) gone(id StreamID) (abandoned []command.ClaimID) {
	s, ok := t.of[id]
	if !ok {
		return nil
	}
	s.gone = true
	delete(t.of, id)
	// Each session is looked at on its own: the order does not matter.
	for session := range s.sessions {
		t.sessions[session].stream = nil
	}
	for _, claim := range s.follows {
		b := t.binding(claim.Session)
		b.follows = slices.DeleteFunc(b.follows, func(f follow) bool { return f.stream == s })
		if !b.followed(claim.Seq) {
			abandoned = append(abandoned, claim)
		}
		t.dropIdle(claim.Session, b)
	}
	return abandoned
}

// follow reports later changes of a claim to a call. It returns false when nobody would learn of
// them.
func (t *streams) follow(id command.ClaimID, by *stream) bool {
	b := t.binding(id.Session)
	if by.gone {
		return b.followed(id.Seq)
	}
	if !slices.Contains(by.follows, id) {
		b.follows = append(b.follows, follow{id.Seq, by})
		by.follows = append(by.follows, id)
	}
	return true
}

// tellOther tells the stream of a session that the session is over for its client, because of a
// request on another stream.
func (t *streams) tellOther(b *binding, from *stream, session command.SessionID, why string) {
	if b != nil && b.stream != nil && b.stream != from {
		t.out.tell(b.stream, session, Ended{Code: command.SessionUnknown, Reason: why})
	}
}

// tellChange reports to the stream of a session, and to the calls that follow the claim, a change
// that their client did not cause.
func (t *streams) tellChange(c *command.Change) {
	b, ok := t.sessions[c.Session]
	if !ok {
		return
	}
	if c.Ended != command.OK {
		if b.stream != nil {
			t.out.tell(b.stream, c.Session, Ended{Code: c.Ended, By: c.By, Reason: c.Reason})
		}
		for _, f := range b.follows {
			t.out.tell(f.stream, c.Session, Changed{endedWith(f.seq, c)})
			f.stream.unfollow(command.ClaimID{Session: c.Session, Seq: f.seq})
		}
		b.follows = nil
		return
	}
	if b.stream != nil {
		t.out.tell(b.stream, c.Session, Changed{c.Claim})
	}
	t.tellFollowers(c.Session, c.Claim, nil)
}

// endedWith returns the state of a claim that ended with its session.
func endedWith(seq uint64, c *command.Change) command.ClaimStatus {
	status := command.ClaimStatus{Seq: seq, State: command.Expired, Change: c.Number}
	if c.Ended == command.SessionRevoked {
		status.State, status.By, status.Reason = command.Revoked, c.By, c.Reason
	}
	return status
}

// tellFollowers notifies the calls that follow a claim, except the one that caused the change, and
// stops following a claim that is over.
func (t *streams) tellFollowers(session command.SessionID, claim command.ClaimStatus, but *stream) {
	b := t.sessions[session]
	if b == nil || len(b.follows) == 0 {
		return
	}
	for _, f := range b.follows {
		if f.seq == claim.Seq && f.stream != but && f.stream != b.stream {
			t.out.tell(f.stream, session, Changed{claim})
		}
	}
	if !claim.State.Final() {
		return
	}
	b.follows = slices.DeleteFunc(b.follows, func(f follow) bool {
		if f.seq == claim.Seq {
			f.stream.unfollow(command.ClaimID{Session: session, Seq: f.seq})
			return true
		}
		return false
	})
}

// dismiss tells the clients of all streams that nothing more comes on them from here.
func (t *streams) dismiss() {
	for _, id := range slices.Sorted(maps.Keys(t.of)) {
		s := t.of[id]
		if len(s.sessions) == 0 && len(s.follows) > 0 {
			t.out.tell(s, s.follows[0].Session, Refused{Reason: NotLeader})
		}
		for _, session := range slices.SortedFunc(maps.Keys(s.sessions), compareIDs) {
			t.out.tell(s, session, Refused{Reason: NotLeader})
		}
	}
}
