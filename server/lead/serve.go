package lead

import (
	"fmt"

	"github.com/lockstep-dev/lockstep/server/command"
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

// Request handles a client request. A Lead that does not serve refuses it with NotLeader.
func (l *Lead) Request(q Request) {
	if _, ok := q.Body.(Gone); ok {
		l.gone(q.Stream)
		return
	}
	if !l.serving {
		if mutantForwarded && l.holdForwarded(q) {
			return
		}
		l.out.refuse(&q, NotLeader)
		return
	}
	l.streams.stream(q.Stream)
	if _, ok := q.Body.(KeepAlive); !ok && l.parking.isOpen(q.parkKey()) {
		if !l.parking.park(q) {
			l.out.refuse(&q, Overloaded)
		}
		return
	}
	// A keepalive is held for the round of the Attach or a later one, so it needs no parking.
	l.serve(q, noRound)
}

// gone removes a stream. Queued claims that only this stream followed are cancelled: nobody would
// learn of the grant.
func (l *Lead) gone(id StreamID) {
	for _, claim := range l.streams.gone(id) {
		l.endAbandoned(claim)
	}
}

// unpark serves what is parked behind an Attach.
func (l *Lead) unpark(key parkKey) {
	for _, q := range l.parking.clear(key) {
		l.Request(q)
	}
}

// serve answers a request, proposes its command, or holds it for a round.
func (l *Lead) serve(q Request, has proof) {
	switch b := q.Body.(type) {
	case Open:
		l.open(&q, b, has)
	case Attach:
		l.attach(&q, b, has)
	case KeepAlive:
		l.keepAlive(&q, b, has)
	case Acquire:
		b.Claim.Session = q.Session
		l.command(&q, &pending{limited: true, command: b.Claim, follow: b.Follow, since: q.Received}, has)
	case Cancel:
		b.Claim.Session = q.Session
		l.command(&q, &pending{command: b.Claim}, has)
	case Release:
		b.Claim.Session = q.Session
		l.command(&q, &pending{command: b.Claim}, has)
	case Close:
		l.command(&q, &pending{command: command.CloseSession{Session: q.Session}, ends: l.sessionWeight(q.Session)}, has)
	case Revoke:
		l.revoke(&q, b, has)
	case ChangeMembers:
		l.group.ChangeMembers(&q, b)
	case RaiseLevel:
		l.raiseLevel(&q, b)
	case ReadLock, ReadLocks, ReadSessions, ReadHistory:
		l.read(&q, has)
	default:
		panic(fmt.Sprintf("lead: unknown request %T", b))
	}
}

// hold makes a request wait for a round.
func (l *Lead) hold(q *Request) bool {
	_, keepAlive := q.Body.(KeepAlive)
	if !l.rounds.hold(held{Request: *q, cost: cost(q.Body, l.machine)}, !keepAlive) {
		l.out.refuse(q, Overloaded)
		return false
	}
	return true
}

func (l *Lead) read(q *Request, has proof) {
	if has != confirmedRound {
		l.hold(q)
		return
	}
	switch b := q.Body.(type) {
	case ReadLock:
		l.out.answer(q, LockRead{l.machine.Lock(b.Name, b.Holders, b.Waiters), l.machine.Counts().Events})
	case ReadLocks:
		locks, more := l.machine.Locks(b.Prefix, b.After, b.Limit)
		l.out.answer(q, LocksRead{Locks: locks, More: more})
	case ReadSessions:
		l.out.answer(q, l.sessions(b))
	case ReadHistory:
		events, complete := l.machine.History(b.Name, b.Limit)
		l.out.answer(q, HistoryRead{Events: events, Complete: complete})
	}
}

// sessions reads one page of the sessions, with the remaining times on the leader's clock.
func (l *Lead) sessions(b ReadSessions) SessionsRead {
	list, more := l.machine.Sessions(b.After, b.Limit)
	out := SessionsRead{Sessions: make([]SessionState, len(list)), More: more}
	for i, v := range list {
		out.Sessions[i] = SessionState{SessionView: v, ExpiresIn: l.timers.left(v.ID)}
	}
	return out
}

// entitled returns the session of a request if the request may act for it, or why not. Release,
// Cancel and Close may act for a session that has ended, as long as that confirms the end of a
// claim.
func (l *Lead) entitled(q *Request) (machine.Session, *Refused) {
	s, ok := l.machine.Session(q.Session)
	if !ok && confirms(q.Body) {
		s, ok = l.machine.Leaving(q.Session)
	}
	if !ok {
		return s, &Refused{Reason: RefusedByMachine, Code: l.machine.SessionEnd(q.Session)}
	}
	if q.Secret != nil {
		if !s.Owned(q.Secret) {
			return s, &Refused{Reason: RefusedByMachine, Code: command.SessionUnknown}
		}
		return s, nil
	}
	if !l.streams.attached(q.Session, q.Stream) {
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

// open proposes a session, unless there are too many in total or for its address.
func (l *Lead) open(q *Request, b Open, has proof) {
	level := l.machine.Limits().FeatureLevel
	c := openCommand(&b, level)
	if res, ok := l.machine.Check(c); !ok {
		l.refuseOrHold(q, l.refusal(&res), has)
		return
	}
	if level < command.SecretLevel && l.queue.rises() {
		// The log would have the secret after the entry up to which it is purged.
		l.out.refuse(q, Overloaded)
		return
	}
	if full := l.origins.full(q.From.Address, l.cfg.SessionsPerAddress); full != nil {
		l.out.answer(q, l.refusal(full))
		return
	}
	if l.enqueue(q, &pending{limited: true, attach: b.Attach, address: q.From.Address, secret: b.Secret, command: c}) {
		l.origins.opening(q.From.Address)
	}
}

// openCommand keeps the secret out of the log as soon as the cluster's feature level allows it.
func openCommand(b *Open, level uint32) command.OpenSession {
	c := command.OpenSession{TTL: b.TTL, Random: b.Random, Secret: b.Secret, ClientNumbered: b.ClientNumbered, Metadata: b.Metadata}
	if level >= command.SecretLevel {
		c.Secret, c.Hashed = b.Secret.Hash(), true
	}
	return c
}

// refuseOrHold refuses a request after a round, or holds it for one.
func (l *Lead) refuseOrHold(q *Request, why Refused, has proof) {
	if has == confirmedRound {
		l.out.answer(q, why)
	} else {
		l.hold(q)
	}
}

// serveWaiting serves the keepalives that wait for the renewal, or for the end, of a session.
func (l *Lead) serveWaiting(id command.SessionID) {
	for _, q := range l.timers.checkpoints.takeWaiting(id) {
		if l.streams.known(q.Stream) {
			l.serve(q, confirmedRound)
		}
	}
}

// attach binds a session to the stream. What the client missed goes first.
func (l *Lead) attach(q *Request, b Attach, has proof) {
	key := q.parkKey()
	if has != confirmedRound {
		if l.hold(q) {
			l.parking.open(key)
		}
		return
	}
	s, ok := l.machine.Session(q.Session)
	bound := l.streams.sessions[q.Session]
	switch {
	case !ok:
		code, by, reason := l.machine.SessionEnding(q.Session)
		if code != command.SessionUnknown {
			l.out.reply(q.Stream, 0, q.Session, Ended{Code: code, By: by, Reason: reason})
		}
		l.out.answer(q, Refused{Reason: RefusedByMachine, Code: code})
	case !s.Owned(&b.Secret):
		l.out.answer(q, Refused{Reason: RefusedByMachine, Code: command.SessionUnknown})
	case bound != nil && b.Number <= bound.number:
		l.out.answer(q, Refused{Reason: OldAttachment, Attached: bound.number})
	default:
		to := l.streams.stream(q.Stream)
		l.streams.tellOther(bound, to, q.Session, "it was attached to another connection, which now has its locks")
		l.streams.bind(q.Session, to, b.Number)
		l.origins.heard(q.Session, q.From.Address)
		for _, claim := range l.machine.ChangedSince(q.Session, b.Seen) {
			l.out.reply(q.Stream, 0, q.Session, Changed{claim})
		}
		l.out.answer(q, Attached{Change: s.Change, TTL: s.TTL, Grace: l.cfg.grace()})
	}
	l.unpark(key)
}

// keepAlive renews a lease, once a round that began after the keepalive arrived shows that no other
// leader can have started timing it meanwhile.
func (l *Lead) keepAlive(q *Request, b KeepAlive, has proof) {
	if has != confirmedRound && !mutantRound {
		l.hold(q)
		return
	}
	s, refused := l.entitled(q)
	if refused != nil {
		l.out.answer(q, *refused)
		return
	}
	t := &l.timers
	if t.expiring.has(q.Session) {
		// Its lease is over and its end is proposed. It is answered when that is applied.
		if !l.rounds.hold(held{Request: *q, late: true}, false) {
			l.out.refuse(q, Overloaded)
		}
		return
	}
	t.renew(&s)
	if t.mustRenew(&s) {
		if !t.checkpoints.holdForRenewal(q) {
			l.out.refuse(q, Overloaded)
		}
		return
	}
	t.leaseRenewed(q.Session, millis(s.TTL))
	kept := Kept{Number: b.Number, Change: s.Change, TTL: s.TTL}
	if b.Unary {
		l.origins.heard(q.Session, q.From.Address) // on a stream, Attach has done so
		kept.Changes = l.machine.ChangedSince(q.Session, b.Seen)
	}
	l.out.answer(q, kept)
}

// command proposes a command of a session. One that would certainly be refused is not proposed; the
// refusal itself is sent only after a round, as it may reveal the session's end.
func (l *Lead) command(q *Request, p *pending, has proof) {
	if _, refused := l.entitled(q); refused != nil {
		l.refuseOrHold(q, *refused, has)
		return
	}
	if res, ok := l.machine.Check(p.command); !ok && l.certain(q.Session, res.Code) {
		l.refuseOrHold(q, l.refusal(&res), has)
		return
	}
	if res, ok := l.origins.check(q.Session, p.command, l.machine, l.now); !ok {
		if l.certain(q.Session, res.Code) {
			l.refuseOrHold(q, l.refusal(&res), has)
		} else {
			l.out.refuse(q, Overloaded) // an earlier copy of it may be in the queue
		}
		return
	}
	l.enqueue(q, p)
}

// certain reports whether nothing in flight can change a verdict of [machine.Machine.Check].
func (l *Lead) certain(session command.SessionID, code command.Code) bool {
	if code == command.NotReady {
		return !l.opening()
	}
	return l.streams.settled(session)
}

func (l *Lead) enqueue(q *Request, p *pending) (admitted bool) {
	p.from, p.tag, p.session = l.streams.stream(q.Stream), q.Tag, q.Session
	if !l.queue.admit(p, l.cfg.QueueCommands, l.now) {
		l.out.refuse(q, Overloaded)
		return false
	}
	if p.session != (command.SessionID{}) {
		l.streams.binding(p.session).pending++
		p.counted = true
	}
	return true
}
