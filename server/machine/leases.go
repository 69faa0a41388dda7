package machine

import (
	"fmt"

	"github.com/lockstep-dev/lockstep/server/command"
)

// needLeaseLevel panics if the feature level is too low, before a replica goes on with a log that
// other members cannot read.
func (m *Machine) needLeaseLevel() {
	if m.limits.FeatureLevel < command.LeaseLevel {
		panic(fmt.Sprintf("machine: a checkpoint of leases at entry %d, but the cluster has feature level %d", m.index, m.limits.FeatureLevel))
	}
}

func (m *Machine) checkpointLeases(term uint64, c *command.CheckpointLeases) command.Result {
	m.needLeaseLevel()
	if c.Term != term {
		return command.Result{Code: command.Void}
	}
	// A zero in a snapshot means that there never was a checkpoint.
	m.leaseClock = max(m.leaseClock, c.Clock, 1)
	m.hash = hashWord(m.hash, uint64(m.leaseClock))
	if m.recovery.Wait != 0 && c.Wait != 0 {
		m.recovery.Wait = min(m.recovery.Wait, c.Wait)
	}
	for _, e := range c.Sessions {
		if s := m.session(e.Session); s != nil {
			m.setLeaseEnd(s, max(e.At, 1))
		}
	}
	for _, e := range c.Delays {
		if c := m.findClosing(e.Claim); c != nil {
			m.setDelayEnd(c, max(e.At, 1))
		}
	}
	return command.Result{}
}

func (m *Machine) renewLeases(term uint64, c *command.RenewLeases) command.Result {
	m.needLeaseLevel()
	if c.Term != term {
		return command.Result{Code: command.Void}
	}
	for _, id := range c.Sessions {
		if s := m.session(id); s != nil {
			m.setLeaseEnd(s, 0)
		}
	}
	return command.Result{}
}

// setLeaseEnd records when the lease of a live session ends; zero clears it.
func (m *Machine) setLeaseEnd(s *session, at command.Millis) {
	if s.leaseEnd == at {
		return
	}
	m.changing(s.id)
	m.counts.Checkpointed += written(at) - written(s.leaseEnd)
	s.leaseEnd = at
	m.hash = hashWord(hashSession(m.hash, s.id), uint64(at))
}

// setDelayEnd records when the delay of a closing claim is over; zero clears it.
func (m *Machine) setDelayEnd(c *claim, at command.Millis) {
	if c.delayEnd == at {
		return
	}
	m.changing(c.session.id)
	m.counts.Checkpointed += written(at) - written(c.delayEnd)
	c.delayEnd = at
	m.hash = hashWord(hashSession(m.hash, c.session.id), uint64(at)<<8^c.seq)
}

// countEnds counts the recorded ends of a session from a snapshot.
func (m *Machine) countEnds(s *session) {
	m.counts.Checkpointed += written(s.leaseEnd)
	for _, c := range s.closing {
		m.counts.Checkpointed += written(c.delayEnd)
	}
}

// written returns 1 for a recorded end, else 0.
func written(at command.Millis) int {
	if at != 0 {
		return 1
	}
	return 0
}

// LeaseClock returns the lease clock of the last checkpoint.
func (m *Machine) LeaseClock() command.Millis { return m.leaseClock }

// left returns how much of a span that ends at the time at a new leader still has to wait, or the
// whole span if no end is recorded.
func (m *Machine) left(span, at command.Millis) (left command.Millis, checkpointed bool) {
	if at == 0 {
		return span, false
	}
	return at - min(at, m.leaseClock), true
}
