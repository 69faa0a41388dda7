package lead

import (
	"cmp"
	"fmt"

	"github.com/lockstep-dev/lockstep/server/command"
)

// raiseLevel proposes the limits with a higher feature level, or says why not.
func (l *Lead) raiseLevel(q *Request, b RaiseLevel) {
	from := l.machine.Limits().FeatureLevel
	limits, refused := l.group.PlanLevel(b)
	switch to := limits.FeatureLevel; {
	case refused != nil:
		l.out.answer(q, *refused)
	case to == from || b.Check:
		l.out.answer(q, LevelRaised{from, to})
	default:
		l.log.Info("feature level: proposed", "from", from, "to", to)
		l.enqueue(q, &pending{command: command.SetLimits{Limits: limits}, level: from})
	}
}

// revoke proposes a revocation; for a name, one for each of its holders.
func (l *Lead) revoke(q *Request, b Revoke, has proof) {
	if b.Name == "" {
		l.enqueue(q, &pending{limited: true, command: b.Command})
		return
	}
	if has != confirmedRound {
		l.hold(q)
		return
	}
	grants := l.machine.Grants(b.Name, cmp.Or(b.Last, command.MaxToken))
	most := l.cfg.QueueCommands * otherFactor
	switch n := len(grants); {
	case n == 0:
		l.out.answer(q, RevokedClaims{})
		return
	case n > most:
		limit := fmt.Sprintf("%q has %d holders, but at most %d can be revoked at once: revoke sessions or claims instead", b.Name, n, most)
		l.out.answer(q, Refused{Reason: RefusedByMachine, Code: command.QuotaExceeded, Limit: limit})
		return
	case n > l.queue.room(l.cfg.QueueCommands): // all or none
		l.out.refuse(q, Overloaded)
		return
	}
	group := &revocation{left: len(grants)}
	for _, g := range grants {
		c := b.Command
		c.Claim, c.Token = g.Claim, g.Token
		p := &pending{command: c, group: group, from: l.streams.stream(q.Stream), tag: q.Tag, session: q.Session}
		if !l.queue.admit(p, l.cfg.QueueCommands, l.now) {
			panic(fmt.Sprintf("lead: no room for one of %d revocations", len(grants)))
		}
	}
}
