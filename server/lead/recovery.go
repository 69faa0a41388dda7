package lead

import (
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
)

// startRecovery starts timing the wait of a restored cluster, except what earlier leaders have
// logged as passed.
func (t *timers) startRecovery() {
	wait := t.machine.Recovery().Wait
	if wait == 0 {
		return
	}
	t.recovering, t.recovered = true, t.clock.Now()+millis(wait)+t.grace
	t.log.Warn("restored cluster: nothing is granted while earlier holders may still believe in their leases", "wait", millis(wait)+t.grace)
}

// recoveryLeft returns what is left of the wait, without the grace, or zero when there is none.
func (t *timers) recoveryLeft() command.Millis {
	if !t.recovering || t.recovered == 0 {
		return 0
	}
	return max(1, roundUp(t.recovered-t.grace-t.clock.Now()))
}

// watchRecovery notes when, on the healthy clock, the wait is over.
func (t *timers) watchRecovery(due time.Duration) {
	t.recovering = t.recovering && t.machine.Recovery().Wait != 0
	if t.recovering && due >= t.recovered {
		t.recovered = 0
	}
}

// wantsRecovered reports whether EndRecovery has to be logged.
func (t *timers) wantsRecovered() bool {
	return t.recovering && t.recovered == 0 && !t.endLogged
}

// opening reports whether the commands that let the machine grant are in flight: whatever is
// proposed now comes after them in the log.
func (l *Lead) opening() bool {
	return l.group.Floored() && (l.timers.endLogged || l.machine.Recovery().Wait == 0)
}

// refusal returns the answer for a command that the machine refused, or would refuse.
func (l *Lead) refusal(result *command.Result) Refused {
	no := Refused{Reason: RefusedByMachine, Code: result.Code, Limit: result.Limit, Claim: result.Claim}
	if no.Code == command.NotReady {
		no.Limit, no.RetryAfter = l.GrantsHeld()
	}
	return no
}

// GrantsHeld returns why nothing is granted, and for how long: on the leader the time left,
// elsewhere the longest it can be, or 0 when not known. An empty reason means that grants go on.
func (l *Lead) GrantsHeld() (why string, span time.Duration) {
	t, wait, noFloor := &l.timers, l.machine.Recovery().Wait, l.group.NoFloor()
	switch {
	case l.machine.Exhausted():
		return "all tokens have been issued: no lock can be granted again", 0
	case noFloor != "":
		return noFloor, 0
	case wait == 0:
		return "", 0
	case l.serving && t.recovering && !t.endLogged:
		span = max(0, t.recovered-t.clock.Now())
	case !l.serving:
		span = millis(wait) + l.cfg.Grace
	}
	return "the cluster was restored, and earlier holders may still believe in their leases", span
}
