package lead

import (
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
)

const (
	// maxEnd bounds what one entry ends: the sum of the names of all claims of its sessions, plus
	// the number of its waits and delays. It is also the most that one session can have.
	maxEnd = 4_096
	// quietCheck is how long the log may go without a check. It gives a follower that owes snapshots
	// the entries that these need, though the cluster is quiet and the leader does not know of it.
	quietCheck = Time(5 * time.Minute)
)

// hasDuties reports whether the leader has commands of its own to propose.
func (l *Lead) hasDuties() bool {
	t := &l.timers
	return l.group.WantsFounding() || t.wantsRecovered() || l.group.WantsMembers() ||
		t.wantsCheckpoint() || t.checkpoints.renewals.fresh() ||
		t.expiring.fresh() || t.waitOver.fresh() || t.delayOver.fresh() || l.wantsCheck()
}

// duties makes the leader's own commands for a batch. They carry its term: the machine ignores
// those that end up in another one.
func (l *Lead) duties(b *batch) (commands []command.Command) {
	t := &l.timers
	commands = append(commands, l.group.Founding()...)
	if t.wantsRecovered() {
		t.endLogged = true
		l.log.Warn("wait after the restore has ended: granting locks")
		commands = append(commands, command.EndRecovery{Term: l.term})
	}
	commands = append(commands, l.group.Members()...)
	commands = append(commands, t.checkpointCommands(l.term, b)...)
	if b.expire = t.expiring.take(maxEnd, l.sessionWeight); len(b.expire) > 0 {
		l.log.Info("expiring sessions", "count", len(b.expire), "first", b.expire[0].String())
		commands = append(commands, command.Expire{Term: l.term, Sessions: b.expire})
	}
	one := func(command.ClaimID) int { return 1 }
	if b.waits = t.waitOver.take(maxEnd, one); len(b.waits) > 0 {
		commands = append(commands, command.EndWait{Term: l.term, Claims: b.waits})
	}
	if b.delays = t.delayOver.take(maxEnd, one); len(b.delays) > 0 {
		commands = append(commands, command.EndDelay{Term: l.term, Claims: b.delays})
	}
	if l.wantsCheck() {
		l.nextCheck, l.checkAt = l.applied+l.cfg.CheckEvery, l.now+quietCheck
		commands = append(commands, command.CheckHash{Index: l.machine.Index(), Hash: l.machine.Hash()})
	}
	return commands
}

// wantsCheck reports whether it is time to compare the replicas' states.
func (l *Lead) wantsCheck() bool {
	quiet := l.machine.Limits().FeatureLevel >= command.SecretLevel && l.now >= l.checkAt
	return quiet || l.applied >= l.nextCheck || l.group.LacksEntry()
}

// sessionWeight returns what ending a session costs: the number of names of its claims, plus one.
func (l *Lead) sessionWeight(id command.SessionID) int {
	s, _ := l.machine.Session(id)
	return max(1, int(s.Weight))
}

// finishDuties forgets what an applied entry of this term was meant to end. Anything that it did
// not end was over before.
func (l *Lead) finishDuties(b *batch) {
	t := &l.timers
	for _, id := range b.expire {
		if _, live := l.machine.Session(id); live {
			panic(fmt.Sprintf("lead: session %v lives after its Expire was applied in term %d", id, l.term))
		}
		t.expiring.drop(id)
	}
	for _, id := range b.waits {
		t.waitOver.drop(id)
	}
	for _, id := range b.delays {
		t.delayOver.drop(id)
	}
	t.finishCheckpoint(b)
	for _, id := range b.renewed {
		t.renewed(id)
		l.serveWaiting(id)
	}
}
