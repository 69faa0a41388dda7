package replica

import (
	"slices"

	"github.com/lockstep-dev/lockstep/server/machine"
)

// deliver reports the results of an applied entry to clients and timers, while this replica serves.
func (r *Replica) deliver(done *Applied) {
	changes := &changeFeed{replica: r, rest: done.Output.Changes}
	var b *batch
	if done.Term == r.lead.term { // only its leader proposes in a term
		b = r.lead.queue.landed(done.Entry.Header.Batch)
	}
	if b != nil {
		for i, p := range b.pendings {
			result := &done.Output.Results[b.own+i]
			changes.upTo(p.session, result.Claim.Change)
			r.answer(p, result)
		}
	}
	changes.all()
	for _, t := range done.Output.Timers {
		r.timer(t)
	}
	if b != nil {
		r.finishDuties(b)
	}
}

// A changeFeed reports changes interleaved with the answers of one entry. A client must see an
// answer and a change of the same claim in the order in which the machine made them.
type changeFeed struct {
	replica *Replica
	rest    []machine.Change
}

// upTo reports the changes that came before a result of the session: those up to the one that the
// result's claim shows.
func (f *changeFeed) upTo(session machine.SessionID, shown uint64) {
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
		f.replica.tellChange(&f.rest[i])
	}
	f.rest = f.rest[n:]
}

// answer sends a client the result of its command.
func (r *Replica) answer(p *pending, result *machine.Result) {
	if p.counted {
		r.settle(p.session)
	}
	if p.from == nil {
		return
	}
	switch p.command.(type) {
	case machine.OpenSession:
		r.answerOpen(p, result)
	case machine.CloseSession:
		if b := r.lead.sessions[p.session]; b != nil && result.Code == machine.OK {
			r.tellOther(b, p.from, p.session, "closed by another call with its secret")
		}
		r.answerPlain(p, result, Closed{})
	case machine.Revoke:
		r.answerRevoke(p, result)
	case machine.SetLimits:
		r.answerRaised(p, result)
	default:
		r.answerPlain(p, result, Claimed{result.Claim})
		r.afterClaim(p, result)
	}
}

// settle counts a command of a session as done.
func (r *Replica) settle(id machine.SessionID) {
	b, ok := r.lead.sessions[id]
	if !ok {
		return
	}
	b.pending--
	r.lead.dropIdle(id, b)
}

func (r *Replica) answerPlain(p *pending, result *machine.Result, ok Answer) {
	if p.from.gone {
		return
	}
	if result.Code != machine.OK {
		ok = r.refusal(result)
	}
	r.out.Replies = append(r.out.Replies, Reply{Stream: p.from.id, Tag: p.tag, Session: p.session, Answer: ok, Received: p.since})
}

func (r *Replica) answerOpen(p *pending, result *machine.Result) {
	open := p.command.(machine.OpenSession)
	r.lead.origins.opened(result.Session, p.address, result.Code == machine.OK)
	if result.Code == machine.OK && p.attach && !p.from.gone {
		r.lead.bind(result.Session, p.from, 1)
	}
	p.session = result.Session
	r.answerPlain(p, result, Opened{Session: result.Session, Secret: p.secret, TTL: open.TTL, Grace: r.grace()})
}

func (r *Replica) answerRevoke(p *pending, result *machine.Result) {
	if p.group == nil {
		r.answerPlain(p, result, RevokedClaims{Count: result.Revoked})
		return
	}
	if p.group.left < 0 {
		return // already refused
	}
	p.group.left--
	p.group.count += result.Revoked
	if p.group.left == 0 && !p.from.gone {
		r.reply(p.from.id, p.tag, p.session, RevokedClaims{Count: p.group.count})
	}
}

// afterClaim notifies the calls that follow a claim, and registers a call that is to follow it.
func (r *Replica) afterClaim(p *pending, result *machine.Result) {
	if result.Code != machine.OK {
		return
	}
	id := machine.ClaimID{Session: p.session, Seq: result.Claim.Seq}
	if b, ok := r.lead.sessions[p.session]; ok {
		r.tellFollowers(b, p.session, result.Claim, p.from)
	}
	if !p.follow || result.Claim.State.Final() {
		return
	}
	b := r.lead.bindingOf(p.session)
	if p.from.gone {
		if !b.followed(id.Seq) {
			r.endAbandoned(id)
		}
		return
	}
	if !slices.Contains(p.from.follows, id) {
		b.follows = append(b.follows, follow{id.Seq, p.from})
		p.from.follows = append(p.from.follows, id)
	}
}
