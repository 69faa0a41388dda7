package command

import "encoding/binary"

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
	Wait     Millis       // what is left of the wait after a restore; zero: unchanged
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

func appendCheckpointLeases(dst []byte, c *CheckpointLeases) []byte {
	for _, v := range [...]uint64{c.Term, uint64(c.Clock), uint64(c.Wait), uint64(len(c.Sessions))} {
		dst = binary.AppendUvarint(dst, v)
	}
	for _, e := range c.Sessions {
		dst = binary.AppendUvarint(append(dst, e.Session[:]...), uint64(e.At))
	}
	dst = binary.AppendUvarint(dst, uint64(len(c.Delays)))
	for _, e := range c.Delays {
		dst = binary.AppendUvarint(AppendClaimID(dst, e.Claim), uint64(e.At))
	}
	return dst
}

func decodeCheckpointLeases(d *Decoder) CheckpointLeases {
	c := CheckpointLeases{Term: d.Uint(), Clock: Millis(d.Uint()), Wait: Millis(d.Uint())}
	if n := d.Count(17); n > 0 {
		c.Sessions = make([]SessionEnd, n)
		for i := range c.Sessions {
			c.Sessions[i] = SessionEnd{d.Bytes16(), Millis(d.Uint())}
		}
	}
	if n := d.Count(18); n > 0 {
		c.Delays = make([]DelayEnd, n)
		for i := range c.Delays {
			c.Delays[i] = DelayEnd{d.ClaimID(), Millis(d.Uint())}
		}
	}
	return c
}
