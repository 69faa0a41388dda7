package replica

import (
	"time"

	"github.com/lockstep-dev/lockstep/server/machine"
)

// startRecovery begins to time the wait of a restored cluster, in full: nobody knows how long earlier
// leaders were cut off.
func (r *Replica) startRecovery() {
	l := &r.lead
	wait := r.machine.Recovery().Wait
	if wait == 0 {
		return
	}
	l.recovering, l.recovered = true, l.clock.Now()+millis(wait)+r.cfg.Grace
	r.log.Warn("restored cluster: nothing is granted while holders from before may believe in their leases", "wait", millis(wait)+r.cfg.Grace)
}

// watchRecovery notes on the healthy clock that the wait is over.
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

// Recovery tells what a restored cluster waits for; see [machine.Recovery].
func (r *Replica) Recovery() machine.Recovery { return r.machine.Recovery() }
