package lead

import "github.com/lockstep-dev/lockstep/server/command"

// deliver reports the results of an applied entry to clients and timers.
func (l *Lead) deliver(term uint64, e *command.Entry, out *command.Output) {
	changes := &changeFeed{streams: &l.streams, rest: out.Changes}
	var b *batch
	if term == l.term { // only its leader proposes in a term
		b = l.queue.landed(e.Header.Batch)
	}
	if b != nil {
		for i, p := range b.pendings {
			result := &out.Results[b.own+i]
			changes.upTo(p.session, result.Claim.Change)
			l.answer(p, result)
		}
	}
	changes.all()
	for _, t := range out.Timers {
		l.timer(t)
	}
	if b != nil {
		l.finishDuties(b)
	}
}

// A changeFeed reports changes interleaved with the answers of one entry. A client must see an
// answer and a change of the same claim in the order in which the machine made them.
type changeFeed struct {
	streams *streams
	rest    []command.Change
}

// upTo reports the changes that came before a result of the session: those up to the one that the
// result's claim shows.
func (f *changeFeed) upTo(session command.SessionID, shown uint64) {
	if shown == 0 || len(f.rest) == 0 {
		return
	}
	for i := len(f.rest) - 1; i >= 0; i-- {
		if c := &f.rest[i]; c.Session == session && c.Number <= shown {
			f.tell(i + 1)
			return
		}
	}
}

func (f *changeFeed) all() { f.tell(len(f.rest)) }

func (f *changeFeed) tell(n int) {
	for i := range f.rest[:n] {
		f.streams.tellChange(&f.rest[i])
	}
	f.rest = f.rest[n:]
}

// answer sends a client the result of its command.
func (l *Lead) answer(p *pending, result *command.Result) {
	if p.counted {
		l.streams.settle(p.session)
	}
	if p.from == nil {
		return
	}
	switch p.command.(type) {
	case command.OpenSession:
		l.answerOpen(p, result)
	case command.CloseSession:
		if result.Code == command.OK {
			l.streams.tellOther(l.streams.sessions[p.session], p.from, p.session, "closed by another call with its secret")
		}
		l.answerPlain(p, result, Closed{})
	case command.Revoke:
		l.answerRevoke(p, result)
	case command.SetLimits:
		l.answerRaised(p, result)
	default:
		l.answerPlain(p, result, Claimed{result.Claim})
		l.afterClaim(p, result)
	}
}

func (l *Lead) answerPlain(p *pending, result *command.Result, ok Answer) {
	if p.from.gone {
		return
	}
	if result.Code != command.OK {
		ok = l.refusal(result)
	}
	l.out.answerPending(p, ok)
}

func (l *Lead) answerOpen(p *pending, result *command.Result) {
	open := p.command.(command.OpenSession)
	l.origins.opened(result.Session, p.address, result.Code == command.OK)
	if result.Code == command.OK && p.attach && !p.from.gone {
		l.streams.bind(result.Session, p.from, 1)
	}
	p.session = result.Session
	l.answerPlain(p, result, Opened{Session: result.Session, Secret: p.secret, TTL: open.TTL, Grace: l.cfg.grace()})
}

func (l *Lead) answerRevoke(p *pending, result *command.Result) {
	if p.group == nil {
		l.answerPlain(p, result, RevokedClaims{Count: result.Revoked})
		return
	}
	if p.group.left < 0 {
		return // already refused
	}
	p.group.left--
	p.group.count += result.Revoked
	if p.group.left == 0 && !p.from.gone {
		l.out.reply(p.from.id, p.tag, p.session, RevokedClaims{Count: p.group.count})
	}
}

// answerRaised reports to the caller that the level has risen.
func (l *Lead) answerRaised(p *pending, result *command.Result) {
	if result.Code != command.OK && !p.from.gone {
		l.out.reply(p.from.id, p.tag, p.session, Refused{Reason: LevelRefused, Limit: result.Limit})
		return
	}
	l.answerPlain(p, result, LevelRaised{p.level, l.machine.Limits().FeatureLevel})
}

// afterClaim notifies the calls that follow a claim, and registers a call that is to follow it.
func (l *Lead) afterClaim(p *pending, result *command.Result) {
	if result.Code != command.OK {
		return
	}
	l.streams.tellFollowers(p.session, result.Claim, p.from)
	if !p.follow || result.Claim.State.Final() {
		return
	}
	if id := (command.ClaimID{Session: p.session, Seq: result.Claim.Seq}); !l.streams.follow(id, p.from) {
		l.endAbandoned(id)
	}
}

// endAbandoned ends a queued claim that nobody is waiting for. It does not log a Cancel: a retry of
// the call may come before it in the log and be granted, and that grant must not be taken back
// unnoticed.
func (l *Lead) endAbandoned(id command.ClaimID) {
	if c, ok := l.machine.Claim(id); !ok || c.State != command.Queued {
		return
	}
	p := &pending{command: command.EndWait{Term: l.term, Claims: []command.ClaimID{id}}, session: id.Session}
	if !l.queue.admit(p, l.cfg.QueueCommands, l.now) {
		l.log.Warn("queue full: an abandoned claim stays until its session ends", "session", id.Session.String(), "seq", id.Seq)
	}
}
