package machine

import "github.com/lockstep-dev/lockstep/server/command"

// An ending is how sessions end.
type ending struct {
	code       command.Code // OK for a close
	by, reason string
	now        bool // with SessionRevoked: free the names at once
}

func (e ending) ofWaiter() command.EventKind {
	switch e.code {
	case command.SessionExpired:
		return command.EventExpired
	case command.SessionRevoked:
		return command.EventRevoked
	default:
		return command.EventCancelled
	}
}

func (e ending) ofHolder() command.EventKind {
	if e.code == command.OK {
		return command.EventReleased
	}
	return e.ofWaiter()
}

// delay returns how long the claim's names stay closed after the end.
func (e ending) delay(c *claim) command.Millis {
	switch {
	case e.code == command.SessionExpired:
		return c.spec.LockDelay
	case e.code == command.SessionRevoked && !e.now:
		return revokeDelay(c)
	default:
		return 0
	}
}

// endSessions ends whole sessions. It removes the waiting claims of all of them first, so that no
// release grants anything to a session that is about to end; then the grants; then it tries the
// queues.
func (m *Machine) endSessions(sessions []*session, how ending) (claims int) {
	for _, s := range sessions {
		m.changing(s.id)
		claims += len(s.claims)
		for _, c := range s.claims {
			if !c.granted {
				m.unqueue(c)
				m.record(how.ofWaiter(), c, how.by, how.reason)
			}
		}
	}
	for _, s := range sessions {
		for _, c := range s.claims {
			if c.granted {
				m.endHolder(c, how)
			}
		}
		s.claims = nil
		m.endSession(s, how)
	}
	m.settle()
	return claims
}

func (m *Machine) endHolder(c *claim, how ending) {
	m.record(how.ofHolder(), c, how.by, how.reason)
	if delay := how.delay(c); delay > 0 {
		m.close(c, delay)
		return
	}
	m.free(c)
}

// endSession ends a session that has no live claims left. Its closing claims remain, unless its
// owner ends it: the owner then knows that they are over.
func (m *Machine) endSession(s *session, how ending) {
	shard := &m.shards[shardOf(s.id)]
	shard.live.remove(s.id)
	m.byID.Delete(s)
	m.counts.Sessions--
	m.timer(command.SessionEnded, command.ClaimID{Session: s.id}, 0)
	m.setLeaseEnd(s, 0)
	if how.code == command.OK || how.now {
		m.confirmAll(s)
	}
	s.ended, s.outcomes, s.nonces, s.weight = how.code, nil, nil, 0
	left := 0
	if len(s.closing) > 0 {
		left = s.weighed()
		shard.leaving.put(s.id, s)
	}
	s.weigh(left - s.bytes)
	m.rememberSession(s.id, how)
	if how.code != command.OK {
		s.change++
		m.out.Changes = append(m.out.Changes, command.Change{
			Session: s.id, Number: s.change, Ended: how.code, By: how.by, Reason: how.reason,
		})
	}
}

func (m *Machine) closeSession(c *command.CloseSession) command.Result {
	if s := m.session(c.Session); s != nil {
		m.endSessions([]*session{s}, ending{})
		return command.Result{}
	}
	if s := m.leaving(c.Session); s != nil {
		m.changing(s.id)
		m.confirmAll(s)
		m.settle()
		return command.Result{}
	}
	if e, ok := m.shards[shardOf(c.Session)].ended.m[c.Session]; ok {
		return command.Result{Code: e.code}
	}
	return command.Result{Code: command.SessionUnknown}
}

// rememberedSessions bounds how many ended sessions are remembered: at 100 sessions a second, those
// of the last eleven minutes, in about 4 MiB.
const rememberedSessions = 65_536

// An endedSession is what is remembered of an ended session. Only the latest ones are kept.
type endedSession struct {
	code   command.Code // OK when its owner closed it
	number uint64
	by     string
	reason string
}

func (m *Machine) rememberSession(id command.SessionID, how ending) {
	m.endings++
	m.shards[shardOf(id)].ended.put(id, endedSession{how.code, m.endings, how.by, how.reason})
	m.lately.push(id)
	for m.lately.len() > rememberedSessions {
		oldest := m.lately.pop()
		m.changing(oldest)
		m.shards[shardOf(oldest)].ended.remove(oldest)
	}
}

// A fifo is a queue of session ids that releases its memory as it advances.
type fifo struct {
	ids  []command.SessionID
	head int
}

func (f *fifo) len() int { return len(f.ids) - f.head }

func (f *fifo) push(id command.SessionID) { f.ids = append(f.ids, id) }

func (f *fifo) pop() command.SessionID {
	id := f.ids[f.head]
	f.head++
	if f.head > len(f.ids)/2 {
		f.ids = append(f.ids[:0], f.ids[f.head:]...)
		f.head = 0
	}
	return id
}
