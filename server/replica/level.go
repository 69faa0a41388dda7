package replica

import (
	"fmt"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// A cluster's feature level rises when an operator asks for it and every member can apply what may
// then be in the log. There is no way back: a node that runs an older build can no longer take
// part.

// planLevel returns the limits with a higher level, or says which members prevent it.
func (r *Replica) planLevel(b lead.RaiseLevel) (command.Limits, *lead.Refused) {
	limits := r.machine.Limits()
	to := b.To
	if to == 0 {
		to = max(limits.FeatureLevel, r.members.newestLevel())
	}
	if refusal, why := r.mayRaise(limits.FeatureLevel, to); why != "" {
		return limits, &lead.Refused{Reason: refusal, Limit: why}
	}
	if to == limits.FeatureLevel {
		return limits, nil
	}
	return limits.At(to, r.cfg.freshLimits(to)), nil
}

// freshLimits provides the limits that the cluster does not have yet.
func (c *Config) freshLimits(level uint32) command.Limits {
	if c.Limits.FeatureLevel < level {
		return command.DefaultLimits()
	}
	return c.Limits
}

func (r *Replica) mayRaise(from, to uint32) (lead.Refusal, string) {
	switch {
	case to < from:
		return lead.LevelRefused, fmt.Sprintf("the cluster is at feature level %d, which cannot be lowered", from)
	case to == from:
		return 0, ""
	case r.young():
		return lead.LevelBusy, "the cluster has not started yet: " + r.founding.noFloor
	case r.members.change != nil:
		return lead.LevelBusy, fmt.Sprintf("a change of member %q is in progress", r.members.change.member.Name)
	}
	needed := to
	if from < command.BirthLevel { // a birth that is given late is known only to the builds that can SecretLevel
		needed = max(to, command.SecretLevel)
	}
	if why := r.members.lacking(needed); why != "" {
		return lead.LevelBusy, fmt.Sprintf("the cluster stays at feature level %d, because not every member supports level %d: %s", from, needed, why)
	}
	return 0, ""
}

// beforeRise gives up the capture in progress before an entry that changes the secrets of all
// sessions: the machine would have to encode at once all that the capture has not reached. Another
// one follows.
func (r *Replica) beforeRise(e *command.Entry) {
	if r.snaps.capture == nil || r.level() >= command.SecretLevel {
		return
	}
	for _, c := range e.Commands {
		if limits, ok := c.(command.SetLimits); ok && limits.Limits.FeatureLevel >= command.SecretLevel {
			r.snaps.failed(r.snaps.meta.GetIndex())
			r.snaps.wanted = true
			return
		}
	}
}

// risen goes on after an entry, or a snapshot of a leader, that brought another level than that of
// before.
func (r *Replica) risen(before uint32) {
	now := r.machine.Limits().FeatureLevel
	if now == before {
		return
	}
	r.log.Info("feature level changed", "before", before, "now", now)
	if before < command.SecretLevel && now >= command.SecretLevel {
		r.out.Forget = r.snaps.forgetSecrets(r.out.Forget)
	}
	r.lead.Raised(before)
}
