package replica

import "github.com/lockstep-dev/lockstep/server/lead"

// promoted goes on when the Lead has begun to serve.
func (r *Replica) promoted() {
	r.zones.rest()
	r.zones.note()
	r.members.unlogged = true
	if r.young() {
		r.founding.noFloor = "the first entries of the cluster have not been logged yet"
	}
}

// depose ends the leadership. A membership change that was proposed may still be applied.
func (r *Replica) depose() {
	if c := r.members.change; c != nil {
		r.lead.Reply(&c.asked, lead.Refused{Reason: lead.NotLeader, Uncertain: true})
	}
	r.members.deposed()
	r.founding.deposed() // why there is no floor depends on the next leader's clock
	r.views = views{}
	r.lead.Depose()
}
