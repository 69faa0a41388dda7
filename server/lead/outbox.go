package lead

import "github.com/lockstep-dev/lockstep/server/command"

// An outbox has the replies that nobody has taken yet, in the order in which they were made.
type outbox struct{ replies []Reply }

func (o *outbox) reply(id StreamID, tag uint64, session command.SessionID, a Answer) {
	o.replies = append(o.replies, Reply{Stream: id, Tag: tag, Session: session, Answer: a})
}

// answer answers a request.
func (o *outbox) answer(q *Request, a Answer) { o.reply(q.Stream, q.Tag, q.Session, a) }

// answerPending answers a command that was proposed.
func (o *outbox) answerPending(p *pending, a Answer) {
	o.replies = append(o.replies, Reply{Stream: p.from.id, Tag: p.tag, Session: p.session, Answer: a, Received: p.since})
}

// refuse answers a request that has no effect, or none for now.
func (o *outbox) refuse(q *Request, why Refusal) { o.answer(q, Refused{Reason: why}) }

// refusePending answers a command that is waiting for its batch or in flight. uncertain says that
// it may still be applied.
func (o *outbox) refusePending(p *pending, why Refusal, uncertain bool) {
	if p.from == nil || p.from.gone {
		return
	}
	if p.group != nil {
		if p.group.left < 0 {
			return
		}
		p.group.left = -1 // one answer for all of them
	}
	o.reply(p.from.id, p.tag, p.session, Refused{Reason: why, Uncertain: uncertain})
}

// tell sends what the client did not ask for.
func (o *outbox) tell(s *stream, session command.SessionID, a Answer) {
	if !s.gone {
		o.reply(s.id, 0, session, a)
	}
}
