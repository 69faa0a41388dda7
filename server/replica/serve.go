package replica

import (
	"cmp"
	"fmt"

	"github.com/lockstep-dev/lockstep/server/machine"
)

// A proof is what an answer may rely on.
type proof bool

const (
	// noRound: this replica led when it last looked. It may be wrong about that by now, so it must
	// say nothing that a live session would take for its end.
	noRound proof = false
	// confirmedRound: a quorum confirmed a round that was started after the request arrived, and
	// everything committed before is applied.
	confirmedRound proof = true
)

// request handles a client request.
func (r *Replica) request(q Request) {
	l := &r.lead
	if _, ok := q.Body.(Gone); ok {
		r.gone(q.Stream)
		return
	}
	if !l.serving {
		if mutantForwarded && r.holdForwarded(q) {
			return
		}
		r.refuse(&q, NotLeader)
		return
	}
	l.streamOf(q.Stream)
	waiting, attaching := l.parked[parkKey{q.Stream, q.Session}]
	if _, ok := q.Body.(KeepAlive); attaching && !ok {
		r.park(q, waiting)
		return
	}
	// A keepalive is held for the round of the Attach or a later one, so it needs no parking.
	r.serve(q, noRound)
}

// park queues a request behind the Attach of its session.
func (r *Replica) park(q Request, waiting []Request) {
	if len(waiting) >= maxParked || r.lead.parkedCount >= maxParkedAll {
		r.refuse(&q, Overloaded)
		return
	}
	r.lead.parkedCount++
	r.lead.parked[parkKey{q.Stream, q.Session}] = append(waiting, q)
}

// unparkAll removes and returns what is parked behind an Attach.
func (l *leadership) unparkAll(key parkKey) []Request {
	waiting := l.parked[key]
	delete(l.parked, key)
	l.parkedCount -= len(waiting)
	return waiting
}

// unpark serves what is parked behind an Attach.
func (r *Replica) unpark(key parkKey) {
	for _, q := range r.lead.unparkAll(key) {
		r.request(q)
	}
}

// serve answers a request, proposes its command, or holds it for a round.
func (r *Replica) serve(q Request, has proof) {
	switch b := q.Body.(type) {
	case Open:
		r.open(&q, b, has)
	case Attach:
		r.attach(&q, b, has)
	case KeepAlive:
		r.keepAlive(&q, b, has)
	case Acquire:
		b.Claim.Session = q.Session
		r.command(&q, &pending{limited: true, command: b.Claim, follow: b.Follow, since: q.Received}, has)
	case Cancel:
		b.Claim.Session = q.Session
		r.command(&q, &pending{command: b.Claim}, has)
	case Release:
		b.Claim.Session = q.Session
		r.command(&q, &pending{command: b.Claim}, has)
	case Close:
		r.command(&q, &pending{command: machine.CloseSession{Session: q.Session}, ends: r.sessionWeight(q.Session)}, has)
	case Revoke:
		r.revoke(&q, b, has)
	case ChangeMembers:
		r.changeMembers(&q, b)
	case RaiseLevel:
		r.raiseLevel(&q, b)
	case ReadLock, ReadLocks, ReadSessions, ReadHistory:
		r.read(&q, has)
	default:
		panic(fmt.Sprintf("replica: unknown request %T", b))
	}
}

// hold makes a request wait for a round.
func (r *Replica) hold(q *Request) bool {
	_, keepAlive := q.Body.(KeepAlive)
	if !r.lead.rounds.hold(held{Request: *q, cost: r.cost(q.Body)}, !keepAlive) {
		r.refuse(q, Overloaded)
		return false
	}
	return true
}

func (r *Replica) read(q *Request, has proof) {
	if has != confirmedRound {
		r.hold(q)
		return
	}
	switch b := q.Body.(type) {
	case ReadLock:
		r.reply(q.Stream, q.Tag, q.Session, LockRead{r.machine.Lock(b.Name, b.Holders, b.Waiters), r.machine.Counts().Events})
	case ReadLocks:
		locks, more := r.machine.Locks(b.Prefix, b.After, b.Limit)
		r.reply(q.Stream, q.Tag, q.Session, LocksRead{Locks: locks, More: more})
	case ReadSessions:
		r.reply(q.Stream, q.Tag, q.Session, r.sessions(b))
	case ReadHistory:
		events, complete := r.machine.History(b.Name, b.Limit)
		r.reply(q.Stream, q.Tag, q.Session, HistoryRead{Events: events, Complete: complete})
	}
}

// sessions reads one page of the sessions, with the remaining times on the leader's clock.
func (r *Replica) sessions(b ReadSessions) SessionsRead {
	list, more := r.machine.Sessions(b.After, b.Limit)
	out := SessionsRead{Sessions: make([]SessionState, len(list)), More: more}
	now := r.lead.clock.Now()
	for i, v := range list {
		out.Sessions[i].SessionView = v
		if at, ok := r.lead.leases.At(v.ID); ok {
			out.Sessions[i].ExpiresIn = machine.Millis(max(0, at-now).Milliseconds())
		}
	}
	return out
}

// entitled returns the session of a request if the request may act for it, or why not. Release,
// Cancel and Close may act for a session that has ended, as long as that confirms the end of a
// claim.
func (r *Replica) entitled(q *Request) (machine.Session, *Refused) {
	s, ok := r.machine.Session(q.Session)
	if !ok && confirms(q.Body) {
		s, ok = r.machine.Leaving(q.Session)
	}
	if !ok {
		return s, &Refused{Reason: RefusedByMachine, Code: r.machine.SessionEnd(q.Session)}
	}
	if q.Secret != nil {
		if !s.Owned(q.Secret) {
			return s, &Refused{Reason: RefusedByMachine, Code: machine.SessionUnknown}
		}
		return s, nil
	}
	if b, ok := r.lead.sessions[q.Session]; !ok || b.stream == nil || b.stream.id != q.Stream {
		return s, &Refused{Reason: NotAttached}
	}
	return s, nil
}

func confirms(b Body) bool {
	switch b.(type) {
	case Release, Cancel, Close:
		return true
	default:
		return false
	}
}

// openCommand keeps the secret out of the log as soon as the cluster's feature level allows it.
func (r *Replica) openCommand(b *Open) machine.OpenSession {
	c := machine.OpenSession{TTL: b.TTL, Random: b.Random, Secret: b.Secret, ClientNumbered: b.ClientNumbered, Metadata: b.Metadata}
	if r.machine.Limits().FeatureLevel >= machine.SecretLevel {
		c.Secret, c.Hashed = b.Secret.Hash(), true
	}
	return c
}

// refuseOrHold refuses a request after a round, or holds it for one.
func (r *Replica) refuseOrHold(q *Request, why Refused, has proof) {
	if has == confirmedRound {
		r.reply(q.Stream, q.Tag, q.Session, why)
	} else {
		r.hold(q)
	}
}

// attach binds a session to the stream. What the client missed goes first.
func (r *Replica) attach(q *Request, b Attach, has proof) {
	key := parkKey{q.Stream, q.Session}
	if has != confirmedRound {
		if r.hold(q) {
			r.lead.parked[key] = nil
		}
		return
	}
	s, ok := r.machine.Session(q.Session)
	bound := r.lead.sessions[q.Session]
	switch {
	case !ok:
		code, by, reason := r.machine.SessionEnding(q.Session)
		if code != machine.SessionUnknown {
			r.reply(q.Stream, 0, q.Session, Ended{Code: code, By: by, Reason: reason})
		}
		r.reply(q.Stream, q.Tag, q.Session, Refused{Reason: RefusedByMachine, Code: code})
	case !s.Owned(&b.Secret):
		r.reply(q.Stream, q.Tag, q.Session, Refused{Reason: RefusedByMachine, Code: machine.SessionUnknown})
	case bound != nil && b.Number <= bound.number:
		r.reply(q.Stream, q.Tag, q.Session, Refused{Reason: OldAttachment, Attached: bound.number})
	default:
		if bound != nil {
			r.tellOther(bound, r.lead.streamOf(q.Stream), q.Session, "it was attached to another connection, which now has its locks")
		}
		r.lead.bind(q.Session, r.lead.streamOf(q.Stream), b.Number)
		r.lead.origins.heard(q.Session, q.From.Address)
		for _, claim := range r.machine.ChangedSince(q.Session, b.Seen) {
			r.reply(q.Stream, 0, q.Session, Changed{claim})
		}
		r.reply(q.Stream, q.Tag, q.Session, Attached{Change: s.Change, TTL: s.TTL, Grace: r.grace()})
	}
	r.unpark(key)
}

func (r *Replica) grace() machine.Millis { return machine.Millis(r.cfg.Grace.Milliseconds()) }

// keepAlive renews a lease, once a round that began after the keepalive arrived shows that no other
// leader can have started timing it meanwhile.
func (r *Replica) keepAlive(q *Request, b KeepAlive, has proof) {
	if has != confirmedRound && !mutantRound {
		r.hold(q)
		return
	}
	s, refused := r.entitled(q)
	if refused != nil {
		r.reply(q.Stream, q.Tag, q.Session, *refused)
		return
	}
	l := &r.lead
	if l.expiring.has(q.Session) {
		// Its lease is over and its end is proposed. It is answered when that is applied.
		if !l.rounds.hold(held{Request: *q, late: true}, false) {
			r.refuse(q, Overloaded)
		}
		return
	}
	l.leases.Set(q.Session, l.clock.Now()+millis(s.TTL)+r.cfg.Grace)
	if r.mustRenew(&s) {
		r.holdForRenewal(q)
		return
	}
	r.leaseRenewed(q.Session, millis(s.TTL))
	kept := Kept{Number: b.Number, Change: s.Change, TTL: s.TTL}
	if b.Unary {
		l.origins.heard(q.Session, q.From.Address) // on a stream, Attach has done so
		kept.Changes = r.machine.ChangedSince(q.Session, b.Seen)
	}
	r.reply(q.Stream, q.Tag, q.Session, kept)
}

// command proposes a command of a session. One that would certainly be refused is not proposed; the
// refusal itself is sent only after a round, as it may reveal the session's end.
func (r *Replica) command(q *Request, p *pending, has proof) {
	if _, refused := r.entitled(q); refused != nil {
		r.refuseOrHold(q, *refused, has)
		return
	}
	if res, ok := r.machine.Check(p.command); !ok && r.certain(q.Session, res.Code) {
		r.refuseOrHold(q, r.refusal(&res), has)
		return
	}
	if res, ok := r.checkShare(q.Session, p.command); !ok {
		if r.certain(q.Session, res.Code) {
			r.refuseOrHold(q, r.refusal(&res), has)
		} else {
			r.refuse(q, Overloaded) // an earlier copy of it may be in the queue
		}
		return
	}
	r.enqueue(q, p)
}

// certain reports whether nothing in flight can change a verdict of [machine.Machine.Check].
func (r *Replica) certain(session machine.SessionID, code machine.Code) bool {
	if code == machine.NotReady {
		return !r.opening()
	}
	b := r.lead.sessions[session]
	return b == nil || b.pending == 0
}

func (r *Replica) enqueue(q *Request, p *pending) (admitted bool) {
	l := &r.lead
	p.from, p.tag, p.session = l.streamOf(q.Stream), q.Tag, q.Session
	if !l.queue.admit(p, r.cfg.QueueCommands, r.now) {
		r.refuse(q, Overloaded)
		return false
	}
	if p.session != (machine.SessionID{}) {
		l.bindingOf(p.session).pending++
		p.counted = true
	}
	return true
}

// revoke proposes a revocation; for a name, one for each of its holders.
func (r *Replica) revoke(q *Request, b Revoke, has proof) {
	if b.Name == "" {
		r.enqueue(q, &pending{limited: true, command: b.Command})
		return
	}
	if has != confirmedRound {
		r.hold(q)
		return
	}
	grants := r.machine.Grants(b.Name, cmp.Or(b.Last, machine.MaxToken))
	most := r.cfg.QueueCommands * otherFactor
	switch n := len(grants); {
	case n == 0:
		r.reply(q.Stream, q.Tag, q.Session, RevokedClaims{})
		return
	case n > most:
		limit := fmt.Sprintf("%q has %d holders, but at most %d can be revoked at once: revoke sessions or claims instead", b.Name, n, most)
		r.reply(q.Stream, q.Tag, q.Session, Refused{Reason: RefusedByMachine, Code: machine.QuotaExceeded, Limit: limit})
		return
	case n > r.lead.queue.room(r.cfg.QueueCommands): // all or none
		r.refuse(q, Overloaded)
		return
	}
	group := &revocation{left: len(grants)}
	for _, g := range grants {
		c := b.Command
		c.Claim, c.Token = g.Claim, g.Token
		p := &pending{command: c, group: group, from: r.lead.streamOf(q.Stream), tag: q.Tag, session: q.Session}
		if !r.lead.queue.admit(p, r.cfg.QueueCommands, r.now) {
			panic(fmt.Sprintf("replica: no room for one of %d revocations", len(grants)))
		}
	}
}
