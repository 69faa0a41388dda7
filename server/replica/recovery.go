package replica

import (
	"time"

	"github.com/lockstep-dev/lockstep/server/machine"
)

// startRecovery starts timing the wait of a restored cluster, except what earlier leaders have
// logged as passed.
func (r *Replica) startRecovery() {
	l := &r.lead
	wait := r.machine.Recovery().Wait
	if wait == 0 {
		return
	}
	l.recovering, l.recovered = true, l.clock.Now()+millis(wait)+r.cfg.Grace
	r.log.Warn("restored cluster: nothing is granted while earlier holders may still believe in their leases", "wait", millis(wait)+r.cfg.Grace)
}

// recoveryLeft returns what is left of the wait, without the grace, or zero when there is none.
func (r *Replica) recoveryLeft() machine.Millis {
	l := &r.lead
	if !l.recovering || l.recovered == 0 {
		return 0
	}
	return max(1, roundUp(l.recovered-r.cfg.Grace-l.clock.Now()))
}

// watchRecovery notes when, on the healthy clock, the wait is over.
func (r *Replica) watchRecovery(due time.Duration) {
	l := &r.lead
	l.recovering = l.recovering && r.machine.Recovery().Wait != 0
	if l.recovering && due >= l.recovered {
		l.recovered = 0
	}
}

// wantsRecovered reports whether EndRecovery has to be logged.
func (r *Replica) wantsRecovered() bool {
	l := &r.lead
	return l.recovering && l.recovered == 0 && !l.endLogged
}

// opening reports whether the commands that let the machine grant are in flight: whatever is
// proposed now comes after them in the log.
func (r *Replica) opening() bool {
	l, recovery := &r.lead, r.machine.Recovery()
	return (l.founding.floorLogged || !r.young()) && (l.endLogged || recovery.Wait == 0)
}

// refusal returns what a client is told about a command that the machine refused, or would refuse.
func (r *Replica) refusal(result *machine.Result) Refused {
	no := Refused{Reason: RefusedByMachine, Code: result.Code, Limit: result.Limit, Claim: result.Claim}
	if no.Code == machine.NotReady {
		no.Limit, no.RetryAfter = r.grantsHeld()
	}
	return no
}

// grantsHeld returns why nothing is granted, and for how long: on the leader the time left,
// elsewhere the longest it can be, or 0 when not known. An empty reason means that grants go on.
func (r *Replica) grantsHeld() (why string, span time.Duration) {
	l, wait := &r.lead, r.machine.Recovery().Wait
	switch {
	case r.machine.Exhausted():
		return "all tokens have been issued: no lock can be granted again", 0
	case r.noFloor != "":
		return r.noFloor, 0
	case wait == 0:
		return "", 0
	case l.serving && l.recovering && !l.endLogged:
		span = max(0, l.recovered-l.clock.Now())
	case !l.serving:
		span = millis(wait) + r.cfg.Grace
	}
	return "the cluster was restored, and earlier holders may still believe in their leases", span
}

// Recovery returns what a restored cluster waits for; see [machine.Recovery].
func (r *Replica) Recovery() machine.Recovery { return r.machine.Recovery() }
