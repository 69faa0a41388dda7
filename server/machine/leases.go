package machine

import (
	"encoding/binary"
	"fmt"
)

// LeaseLevel is the feature level from which the log may hold [CheckpointLeases] and [RenewLeases].
const LeaseLevel = 2

// CheckpointLeases records when leases end that have not been renewed for a while, so that the next
// leader does not start them over. Times are on the lease clock, which runs while a leader is
// healthy and never faster than real time: the real time between two checkpoints is at least the
// difference of their clocks. A lease whose end is recorded is not renewed until [RenewLeases] is
// applied. Like Expire, the command is void in another term.
type CheckpointLeases struct {
	Term     uint64
	Clock    Millis       // the lease clock of the proposer; it does not fall
	Wait     Millis       // what is left of Recovery.Wait; zero: unchanged
	Sessions []SessionEnd // when no client believes in its lease any longer, without the grace
	Delays   []DelayEnd   // when the delay of a closing claim is over, without the grace
}

// A SessionEnd is the end of the lease of a session on the lease clock.
type SessionEnd struct {
	Session SessionID
	At      Millis
}

// A DelayEnd is the end of the delay of a closing claim on the lease clock.
type DelayEnd struct {
	Claim ClaimID
	At    Millis
}

// RenewLeases takes back what [CheckpointLeases] recorded for sessions whose owners have come back.
// Their keepalives may be answered only after it is applied. Like Expire, it is void in another
// term.
type RenewLeases struct {
	Term     uint64
	Sessions []SessionID
}

func (CheckpointLeases) command() {}
func (RenewLeases) command()      {}

// needLeaseLevel panics if the feature level is too low, before a replica goes on with a log that
// other members cannot read.
func (m *Machine) needLeaseLevel() {
	if m.limits.FeatureLevel < LeaseLevel {
		panic(fmt.Sprintf("machine: a checkpoint of leases at entry %d, but the cluster has feature level %d", m.index, m.limits.FeatureLevel))
	}
}

func (m *Machine) checkpointLeases(term uint64, c *CheckpointLeases) Result {
	m.needLeaseLevel()
	if c.Term != term {
		return Result{Code: Void}
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
	return Result{}
}

func (m *Machine) renewLeases(term uint64, c *RenewLeases) Result {
	m.needLeaseLevel()
	if c.Term != term {
		return Result{Code: Void}
	}
	for _, id := range c.Sessions {
		if s := m.session(id); s != nil {
			m.setLeaseEnd(s, 0)
		}
	}
	return Result{}
}

// setLeaseEnd records when the lease of a live session ends; zero clears it.
func (m *Machine) setLeaseEnd(s *session, at Millis) {
	if s.leaseEnd == at {
		return
	}
	m.changing(s.id)
	m.counts.Checkpointed += written(at) - written(s.leaseEnd)
	s.leaseEnd = at
	m.hash = hashWord(hashSession(m.hash, s.id), uint64(at))
}

// setDelayEnd records when the delay of a closing claim is over; zero clears it.
func (m *Machine) setDelayEnd(c *claim, at Millis) {
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
func written(at Millis) int {
	if at != 0 {
		return 1
	}
	return 0
}

// LeaseClock returns the lease clock of the last checkpoint.
func (m *Machine) LeaseClock() Millis { return m.leaseClock }

// left returns how much of a span that ends at the time at a new leader still has to wait, or the
// whole span if no end is recorded.
func (m *Machine) left(span, at Millis) (left Millis, checkpointed bool) {
	if at == 0 {
		return span, false
	}
	return at - min(at, m.leaseClock), true
}

func appendCheckpointLeases(dst []byte, c *CheckpointLeases) []byte {
	for _, v := range [...]uint64{c.Term, uint64(c.Clock), uint64(c.Wait), uint64(len(c.Sessions))} {
		dst = binary.AppendUvarint(dst, v)
	}
	for _, e := range c.Sessions {
		dst = binary.AppendUvarint(append(dst, e.Session[:]...), uint64(e.At))
	}
	dst = binary.AppendUvarint(dst, uint64(len(c.Delays)))
	for _, e := range c.Delays {
		dst = binary.AppendUvarint(appendClaimID(dst, e.Claim), uint64(e.At))
	}
	return dst
}

func decodeCheckpointLeases(d *decoder) CheckpointLeases {
	c := CheckpointLeases{Term: d.uint(), Clock: Millis(d.uint()), Wait: Millis(d.uint())}
	if n := d.count(17); n > 0 {
		c.Sessions = make([]SessionEnd, n)
		for i := range c.Sessions {
			c.Sessions[i] = SessionEnd{d.bytes16(), Millis(d.uint())}
		}
	}
	if n := d.count(18); n > 0 {
		c.Delays = make([]DelayEnd, n)
		for i := range c.Delays {
			c.Delays[i] = DelayEnd{d.claimID(), Millis(d.uint())}
		}
	}
	return c
}
