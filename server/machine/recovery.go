package machine

import "github.com/lockstep-dev/lockstep/server/command"

// A Recovery is what remains to be done before a machine that was renewed from a backup grants
// anything. The zero value means that nothing remains; every other machine has it.
type Recovery struct {
	// FloorDue: the first leader has to log a [command.SetTokenFloor], because tokens may have been
	// issued after the backup was taken.
	FloorDue bool
	// Wait, if not zero, is how long a leader has to serve before it logs [command.EndRecovery]: a
	// holder from before the restore may believe in its lease for that long.
	Wait command.Millis
	// Stamp is the wall clock of the backup. The clock that the floor is taken from must not be
	// earlier.
	Stamp command.WallMillis
}

// Pending reports whether grants are still on hold.
func (r Recovery) Pending() bool { return r.FloorDue || r.Wait != 0 }

// Recovery returns what remains to be done after [Machine.Renew].
func (m *Machine) Recovery() Recovery { return m.recovery }

// Renew turns the state of a backup, taken at the wall time stamp, into the first state of a new
// cluster, one index further. No session survives: each ends as revoked by "restore", with all its
// claims, including closing and remembered ones. The member table and the birth are cleared.
// Nothing is granted before a new token floor and, unless wait is zero, before the leader has
// waited for the longest of wait and every TTL and delay in the backup. The result is a function of
// the state and the arguments alone, so every node derives the same state from the same file. Renew
// panics while a capture runs.
func (m *Machine) Renew(stamp command.WallMillis, wait command.Millis) {
	if m.capture != nil {
		panic("machine: Renew while a capture runs")
	}
	m.index++
	m.wall, m.at = stamp, Position{Index: m.index}
	clear(m.touched)
	m.touched, m.out = m.touched[:0], command.Output{}
	if wait != 0 {
		wait = max(wait, m.longestBelief())
	}
	m.endAll(ending{code: command.SessionRevoked, by: "restore", reason: "the cluster was restored from a backup", now: true})
	m.hash = hashOutput(m.hash, m.index, &m.out)
	m.recent[m.index%recentHashes] = indexHash{m.index, m.hash}
	m.out = command.Output{}
	m.members, m.birth = nil, command.BirthID{} // the new cluster has its own
	m.marks = marks{start: Mark{m.index, m.hash}}
	m.recovery = Recovery{FloorDue: true, Wait: wait, Stamp: stamp}
}

// longestBelief returns how long any holder may believe in its grant, or keep its names closed.
func (m *Machine) longestBelief() (longest command.Millis) {
	longest = m.recovery.Wait
	for i := range m.shards {
		for _, t := range [...]*table[command.SessionID, *session]{&m.shards[i].live, &m.shards[i].leaving} {
			// The order does not matter for a maximum.
			for _, s := range t.m {
				longest = max(longest, s.ttl)
				for _, c := range s.claims {
					longest = max(longest, c.spec.LockDelay)
				}
				for _, c := range s.closing {
					longest = max(longest, c.delay)
				}
			}
		}
	}
	return longest
}

// endAll ends every session, in order of shards and ids.
func (m *Machine) endAll(how ending) {
	var live, leaving []*session
	for i := range m.shards {
		live = append(live, sortedSessions(&m.shards[i].live)...)
		leaving = append(leaving, sortedSessions(&m.shards[i].leaving)...)
	}
	m.endSessions(live, how)
	for _, s := range leaving {
		m.confirmAll(s)
	}
	m.settle()
}

// endRecovery ends the waiting time of a renewed machine.
func (m *Machine) endRecovery(term uint64, c *command.EndRecovery) command.Result {
	if c.Term != term {
		return command.Result{Code: command.Void}
	}
	m.recovery.Wait = 0
	m.finishRecovery()
	return command.Result{}
}

// finishRecovery clears the recovery once nothing of it remains.
func (m *Machine) finishRecovery() {
	if !m.recovery.Pending() {
		m.recovery = Recovery{}
	}
}
