package machine

import (
	"encoding/binary"
	"fmt"
)

// LeaseLevel is the feature level from which the log may hold [CheckpointLeases] and [RenewLeases].
const LeaseLevel = 2

// CheckpointLeases writes down when leases end that were not renewed for a while, so that the next leader does not
// begin them anew. The time is that of the lease clock, which runs while a leader is healthy and never faster than
// real time: between two checkpoints at least as much time has passed as between their clocks. A lease that is
// written down is not renewed before [RenewLeases] is applied. It is void like Expire under another term.
type CheckpointLeases struct {
	Term     uint64
	Clock    Millis       // the lease clock of the proposer; it does not fall
	Wait     Millis       // what is left of Recovery.Wait; zero: it does not change
	Sessions []SessionEnd // when no client believes in its lease any more, without the grace
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

// RenewLeases takes back what [CheckpointLeases] wrote down of sessions whose owners have come back. Only after it is applied
// may their keepalives be answered. It is void like Expire under another term.
type RenewLeases struct {
	Term     uint64
	Sessions []SessionID
}

func (CheckpointLeases) command() {}
func (RenewLeases) command()      {}

// needLeaseLevel stops a replica before it goes on with a log that other members cannot read.
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
	m.leaseClock = max(m.leaseClock, c.Clock, 1) // zero in a snapshot: there never was a checkpoint
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

// setLeaseEnd writes down when the lease of a live session ends; zero takes it back.
func (m *Machine) setLeaseEnd(s *session, at Millis) {
	if s.leaseEnd == at {
		return
	}
	m.changing(s.id)
	m.counts.Checkpointed += written(at) - written(s.leaseEnd)
	s.leaseEnd = at
	m.hash = hashWord(hashSession(m.hash, s.id), uint64(at))
}

// setDelayEnd writes down when the delay of a closing claim is over; zero forgets it.
func (m *Machine) setDelayEnd(c *claim, at Millis) {
	if c.delayEnd == at {
		return
	}
	m.changing(c.session.id)
	m.counts.Checkpointed += written(at) - written(c.delayEnd)
	c.delayEnd = at
	m.hash = hashWord(hashSession(m.hash, c.session.id), uint64(at)<<8^c.seq)
}

// countEnds counts what a session from a snapshot has written down.
func (m *Machine) countEnds(s *session) {
	m.counts.Checkpointed += written(s.leaseEnd)
	for _, c := range s.closing {
		m.counts.Checkpointed += written(c.delayEnd)
	}
}

// written is 1 for an end that is written down.
func written(at Millis) int {
	if at != 0 {
		return 1
	}
	return 0
}

// LeaseClock is that of the last checkpoint.
func (m *Machine) LeaseClock() Millis { return m.leaseClock }

// left is what a new leader has to time of a span that ends at the time at, or the whole span if no end is written down.
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
