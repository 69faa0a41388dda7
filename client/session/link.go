package session

import (
	"math"
	"slices"
	"time"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/lease"
)

// The waits before a session that was superseded attaches again: up to 20 ms, doubling up to 500
// ms.
const (
	firstTurn = 20 * time.Millisecond
	lastTurn  = 500 * time.Millisecond
)

// maxPending bounds the confirmations that wait for a change. One is due every TTL/3, and the lease
// ends after three; dropping one loses a renewal, which is safe.
const maxPending = 8

// A requestKind is the kind of a request, needed to handle its answer.
type requestKind int

const (
	kindOpen requestKind = iota
	kindAttach
	kindKeepAlive
	kindAcquire
	kindCancel
	kindRelease
	kindClose
)

// sent is a request not yet answered on this connection.
type sent struct {
	kind requestKind
	seq  uint64 // of the claim
	at   time.Duration
}

// A pendingConfirm is a confirmed keepalive whose answer counts changes that have not arrived yet.
type pendingConfirm struct {
	attempt uint64
	change  uint64
	since   time.Duration
}

// A watch detects a connection that is open but useless: the node hangs or is cut off from the
// others, or the network silently drops packets.
type watch struct {
	link time.Duration // when the answer to Open or Attach is overdue; zero = none is expected
	kept []awaited     // keepalives without an answer, oldest first
	told bool          // Reconnect was reported: once per connection is enough
}

type awaited struct {
	attempt  uint64
	deadline time.Duration
}

func (w *watch) deadline() time.Duration {
	switch {
	case w.link != 0: // a keepalive sent with the Attach is answered after it
		return w.link
	case len(w.kept) > 0:
		return w.kept[0].deadline
	}
	return Never
}

// answerTimeout is how long a keepalive may go without an answer before another connection is
// tried: TTL/5, so that after a keepalive due at TTL/3 nearly half the lease is left to find the
// new leader; at least 500 ms, two of the service's idle rounds, and at most 5 s.
func answerTimeout(ttl time.Duration) time.Duration {
	return min(max(ttl/5, 500*time.Millisecond), 5*time.Second)
}

// linkTimeout is the same for Open and Attach, which a new leader answers only when it is ready and
// has handled the other returning sessions: TTL/4, at least 500 ms.
func linkTimeout(ttl time.Duration) time.Duration {
	return max(ttl/4, 500*time.Millisecond)
}

// dropLink forgets what belonged to the connection. Unanswered requests are sent again on the next
// one.
func (s *Session) dropLink() {
	s.link, s.attachAt = down, 0
	clear(s.inFlight)
	s.watch = watch{}
	s.out = nil
	s.revoked = nil              // at the service they end by themselves, after the TTL plus the grace
	for _, c := range s.claims { // in any order: each is handled independently
		c.tag = 0
	}
}

// push puts a request on the connection.
func (s *Session) push(now time.Duration, kind requestKind, seq uint64, r *pb.ClientRequest) (tag uint64) {
	s.lastTag++
	r.Tag, r.Session = s.lastTag, s.id
	s.inFlight[s.lastTag] = sent{kind: kind, seq: seq, at: now}
	s.out = append(s.out, r)
	return s.lastTag
}

// sendOpen asks for a session. Each attempt would create a separate session, so the lease counts
// from when the answered attempt was sent; the others expire unused.
func (s *Session) sendOpen(now time.Duration) {
	s.link = opening
	s.lease = lease.New(s.cfg.TTL)
	s.opened = s.lease.Sending(now)
	s.watch.link = now + linkTimeout(s.cfg.TTL)
	s.push(now, kindOpen, 0, &pb.ClientRequest{Body: &pb.ClientRequest_Open{Open: &pb.StreamOpen{
		TtlMs:    millis(s.cfg.TTL),
		Metadata: s.cfg.Metadata,
	}}})
}

// sendAttach binds the session to this connection. The keepalive goes with it, so that nothing
// comes between the two: the next client to attach finds a renewed lease.
func (s *Session) sendAttach(now time.Duration) {
	s.link, s.attachAt = attaching, 0
	s.attach++
	s.watch.link = now + linkTimeout(s.lease.TTL())
	s.push(now, kindAttach, 0, &pb.ClientRequest{Body: &pb.ClientRequest_Attach{Attach: &pb.StreamAttach{
		Secret: s.secret,
		Number: s.attach,
		Seen:   s.seenAtAttach(),
	}}})
	if !s.closing { // Open counts as a send; Attach renews nothing
		s.sendKeepAlive(now)
	}
}

// superseded handles the news that another connection has the session, or the refusal of an Attach
// because its number does not exceed the other's. A process that works under a claim has lost it:
// another process now has it. Otherwise, while this side is only restoring a detached session or
// ending its claims, the two take turns: it attaches with a higher number after a jittered wait. e
// says which number to exceed, if the service reports it; otherwise the numbers grow until one is
// accepted.
func (s *Session) superseded(now time.Duration, e *pb.Error, by string) {
	switch {
	case s.restored != 0:
	case s.handedOut():
		s.end(now, Update{Reason: lockstep.RecordMissing, By: by, Detail: "another process has taken over the session and its locks: " + e.GetMessage()})
		return
	case s.closing && len(s.claims) == 0:
		s.end(now, Update{})
		return
	}
	clear(s.inFlight) // the keepalive was refused with its attachment
	s.watch = watch{told: s.watch.told}
	s.link = attaching
	if s.attach < e.GetAttached() {
		s.attach = e.GetAttached()
	} else {
		s.attach += 1<<min(3*s.outrun, 40) - 1
	}
	most := min(firstTurn<<min(s.outrun, 8), lastTurn)
	s.attachAt = now + time.Duration(s.cfg.Rand()*float64(most))
	s.outrun++
	s.tell(Update{Kind: Deferred, Err: e})
}

// handedOut reports whether someone may be working under a claim of this session.
func (s *Session) handedOut() bool {
	for _, c := range s.claims { // in any order: one is enough
		if c.state == granted && c.end == endNone {
			return true
		}
	}
	return false
}

// seenAtAttach is the number of the last change received, as reported to the service, which sends
// the later ones before it answers anything else.
func (s *Session) seenAtAttach() uint64 {
	if leaseMovesUnseen {
		return math.MaxUint64
	}
	return s.seen
}

// sendClose asks for the end of the session. Without keepalives nothing else would notice that this
// connection does not answer, and the locks would stay held until the lease runs out.
func (s *Session) sendClose(now time.Duration) {
	s.watch.link = now + answerTimeout(s.lease.TTL())
	s.push(now, kindClose, 0, &pb.ClientRequest{Body: &pb.ClientRequest_Close{Close: &pb.StreamClose{}}})
}

// openedBy handles the answer to Open.
func (s *Session) openedBy(now time.Duration, tag uint64, o *pb.StreamOpened) {
	if q, ok := s.inFlight[tag]; !ok || q.kind != kindOpen || s.id != "" {
		return
	}
	delete(s.inFlight, tag)
	ttl := span(o.GetTtlMs())
	if lease.Check(ttl) != nil || o.GetSession() == "" {
		s.reconnect(Update{Detail: "the service answered a session without a usable id or TTL"})
		return
	}
	s.lease.Adopt(ttl)
	if !s.lease.Confirm(now, s.opened) { // answered too late: nothing has been requested on it yet
		s.sendOpen(now)
		return
	}
	s.id, s.secret, s.grace, s.attach = o.GetSession(), o.GetSecret(), span(o.GetGraceMs()), 1
	s.linked(now, Opened)
}

// attachedBy handles the answer to Attach: all missed changes came before it.
func (s *Session) attachedBy(now time.Duration, tag uint64, a *pb.StreamAttached) {
	if q, ok := s.inFlight[tag]; !ok || q.kind != kindAttach {
		return
	}
	delete(s.inFlight, tag)
	if ttl := span(a.GetTtlMs()); lease.Check(ttl) == nil {
		s.lease.Adopt(ttl)
	}
	s.grace = span(a.GetGraceMs())
	s.reached(now, a.GetChange())
	if s.ended(now) { // the lease may now be shorter
		return
	}
	s.linked(now, Resumed)
}

// linked starts the traffic on a new connection: everything the service must know is sent again
// under the same numbers. Answered claims are not requested again: their changes came with
// Attached.
func (s *Session) linked(now time.Duration, kind Kind) {
	s.link = up
	s.outrun = 0
	s.watch.link = 0
	for i := range s.watch.kept { // sent with the Attach, which may take longer to answer
		s.watch.kept[i].deadline = now + answerTimeout(s.lease.TTL())
	}
	s.pending = nil // what did not come with the attachment will not come
	s.tell(Update{Kind: kind})
	if s.closing {
		s.sendClose(now)
		return
	}
	s.unsent, s.later = nil, nil
	for _, seq := range s.seqs() {
		c := s.claims[seq]
		c.retryAt = 0
		switch {
		case c.end != endNone:
			s.sendEnd(now, c)
		case c.state == asked:
			s.unsent = append(s.unsent, seq)
		}
	}
	s.flush(now)
}

// keepAlive renews the lease when it is due. A session that is being closed is not
// renewed: if the service cannot be reached it ends with its lease.
func (s *Session) keepAlive(now time.Duration) {
	if s.link == up && !s.closing && s.lease.NextSend(now) <= now {
		s.sendKeepAlive(now)
		s.resend(now)
	}
}

func (s *Session) sendKeepAlive(now time.Duration) {
	attempt := s.lease.Sending(now)
	s.watch.kept = append(s.watch.kept, awaited{attempt, now + answerTimeout(s.lease.TTL())})
	s.push(now, kindKeepAlive, 0, &pb.ClientRequest{Body: &pb.ClientRequest_KeepAlive{KeepAlive: &pb.StreamKeepAlive{Number: attempt}}})
}

// keptBy handles the answer to a keepalive. It counts only when all the changes that it names have
// arrived: otherwise a lock that was taken away would be trusted forever.
func (s *Session) keptBy(now time.Duration, tag uint64, k *pb.StreamKept) {
	if q, ok := s.inFlight[tag]; !ok || q.kind != kindKeepAlive {
		return
	}
	delete(s.inFlight, tag)
	n := k.GetNumber()
	s.watch.kept = slices.DeleteFunc(s.watch.kept, func(a awaited) bool { return a.attempt <= n })
	if k.GetChange() > s.seen && !leaseMovesUnseen {
		if len(s.pending) == maxPending {
			s.pending = slices.Delete(s.pending, 0, 1)
		}
		s.pending = append(s.pending, pendingConfirm{attempt: n, change: k.GetChange(), since: now})
		return
	}
	s.confirm(now, n)
}

func (s *Session) confirm(now time.Duration, attempt uint64) {
	if !s.lease.Confirm(now, attempt) {
		return
	}
	s.tell(Update{Kind: Renewed})
	if s.restored != 0 {
		s.tellRestored()
	}
}

// reached records that all changes up to number have arrived.
func (s *Session) reached(now time.Duration, number uint64) {
	s.seen = max(s.seen, number)
	s.pending = slices.DeleteFunc(s.pending, func(p pendingConfirm) bool {
		if p.change > s.seen {
			return false
		}
		s.confirm(now, p.attempt)
		return true
	})
}

// checkAnswers asks for another connection if this one does not answer, or if the changes counted
// in a keepalive's answer do not arrive.
func (s *Session) checkAnswers(now time.Duration) {
	if s.link != down && now >= s.overdue() {
		s.reconnect(Update{Detail: "no response in time"})
	}
}

// overdue is the time at which the connection counts as not answering.
func (s *Session) overdue() time.Duration {
	if s.link == down || s.watch.told {
		return Never
	}
	next := s.watch.deadline()
	if s.link == up && len(s.pending) > 0 { // an attachment in progress brings the changes
		next = min(next, s.pending[0].since+answerTimeout(s.lease.TTL()))
	}
	return next
}

func (s *Session) reconnect(u Update) {
	if s.watch.told {
		return
	}
	s.watch.told = true
	u.Kind = Reconnect
	s.tell(u)
}

// ended reports whether the session is over, and ends it if its lease is.
func (s *Session) ended(now time.Duration) bool {
	if !s.over && s.id != "" && s.lease.Over(now) {
		s.end(now, Update{Reason: lockstep.LeaseEnded})
	}
	return s.over
}

// millis rounds up, so that a lease is never shorter than requested.
func millis(d time.Duration) uint64 { return uint64((d + time.Millisecond - 1) / time.Millisecond) }

// span is ms as a duration, at most about 292 years.
func span(ms uint64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
}
