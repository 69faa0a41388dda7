package replica

import (
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep/server/machine"
)

const (
	// maxEnd bounds what one entry ends: the sum of the names of all claims of its sessions, plus
	// the number of its waits and delays. It is also the most that one session can have.
	maxEnd = 4_096

	// tokenEpoch is 2025-01-01, from which token floors count.
	tokenEpoch = 1_735_689_600
	// tokenAhead lets the next floor, which comes from another clock, be up to an hour behind this
	// one.
	tokenAhead = 3_600
	// tokenShift leaves room for 4,194,304 grants per second between two floors.
	tokenShift = 22
	// tokenEnd is in 2093, when floors would outgrow machine.MaxToken.
	tokenEnd = tokenEpoch - tokenAhead + 1<<(53-tokenShift)
)

// tokenFloor returns the first token of a cluster that begins at the given wall time, or of one
// that may have lost history: later than any token that an earlier life can have issued. The
// seconds are in the high bits. The microseconds within the second are added, so that two lives
// that begin within one second have floors 1,000 apart for each millisecond between them, which is
// more than a life can grant. The floor stays below 2^53 until 2093.
func tokenFloor(wall machine.WallMillis) machine.Token {
	seconds, millis := uint64(wall)/1000, uint64(wall)%1000
	return machine.Token((seconds-tokenEpoch+tokenAhead)<<tokenShift + millis*1000)
}

// hasDuties reports whether the leader has commands of its own to propose.
func (r *Replica) hasDuties() bool {
	l := &r.lead
	return r.wantsBirth() || r.wantsFloor() || r.wantsRecovered() || r.wantsMembers() || r.wantsCheckpoint() || l.checkpoints.renewals.fresh() || l.expiring.fresh() || l.waitOver.fresh() || l.delayOver.fresh() || r.wantsCheck()
}

// duties makes the leader's own commands for a batch. They carry its term: the machine ignores
// those that end up in another one.
func (r *Replica) duties(b *batch) (commands []machine.Command) {
	l := &r.lead
	if r.wantsBirth() {
		l.founding.birthLogged = true
		commands = append(commands, r.birthCommands()...)
	}
	if r.wantsFloor() {
		l.founding.floorLogged = true
		commands = append(commands, r.floorCommands()...)
	}
	if r.wantsRecovered() {
		l.endLogged = true
		r.log.Warn("wait after the restore has ended: granting locks")
		commands = append(commands, machine.EndRecovery{Term: l.term})
	}
	if r.wantsMembers() {
		r.members.unlogged = false
		commands = append(commands, r.memberCommands()...)
	}
	commands = append(commands, r.checkpointCommands(b)...)
	if b.expire = l.expiring.take(maxEnd, r.sessionWeight); len(b.expire) > 0 {
		r.log.Info("expiring sessions", "count", len(b.expire), "first", b.expire[0].String())
		commands = append(commands, machine.Expire{Term: l.term, Sessions: b.expire})
	}
	one := func(machine.ClaimID) int { return 1 }
	if b.waits = l.waitOver.take(maxEnd, one); len(b.waits) > 0 {
		commands = append(commands, machine.EndWait{Term: l.term, Claims: b.waits})
	}
	if b.delays = l.delayOver.take(maxEnd, one); len(b.delays) > 0 {
		commands = append(commands, machine.EndDelay{Term: l.term, Claims: b.delays})
	}
	if r.wantsCheck() {
		l.nextCheck, l.checkAt = r.applied+r.cfg.CheckEvery, r.now+quietCheck
		commands = append(commands, machine.CheckHash{Index: r.machine.Index(), Hash: r.machine.Hash()})
	}
	return commands
}

// clockFault returns why the wall clock cannot be right, or "".
func (r *Replica) clockFault() string {
	switch {
	case r.wall < r.machine.Recovery().Stamp:
		return "before the backup was taken"
	case tokenFloor(max(r.wall, tokenEpoch*1000)) < r.machine.Counts().NextToken:
		return "earlier than the tokens already issued"
	case r.wall < r.cfg.Built || r.wall < tokenEpoch*1000:
		return "before this program was built"
	case r.wall >= tokenEnd*1000:
		return "beyond the range of tokens"
	}
	return ""
}

// quietCheck is how long the log may go without a check. It gives a follower that owes snapshots the entries that these need, though
// the cluster is quiet and the leader does not know of it.
const quietCheck = Time(5 * time.Minute)

// wantsCheck reports whether it is time to compare the replicas' states.
func (r *Replica) wantsCheck() bool {
	quiet := r.Level() >= machine.SecretLevel && r.now >= r.lead.checkAt
	return quiet || r.applied >= r.lead.nextCheck || r.lacksEntry()
}

// sessionWeight returns what ending a session costs: the number of names of its claims, plus one.
func (r *Replica) sessionWeight(id machine.SessionID) int {
	s, _ := r.machine.Session(id)
	return max(1, int(s.Weight))
}

// finishDuties forgets what an applied entry of this term was meant to end. Anything that it did
// not end was over before.
func (r *Replica) finishDuties(b *batch) {
	l := &r.lead
	for _, id := range b.expire {
		if _, live := r.machine.Session(id); live {
			panic(fmt.Sprintf("replica: session %v lives after its Expire was applied in term %d", id, l.term))
		}
		l.expiring.drop(id)
	}
	for _, id := range b.waits {
		l.waitOver.drop(id)
	}
	for _, id := range b.delays {
		l.delayOver.drop(id)
	}
	r.finishCheckpoint(b)
}
