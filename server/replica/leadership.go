package replica

import "github.com/lockstep-dev/lockstep/server/lead"

// promoted goes on when the Lead has begun to serve.
func (r *Replica) promoted() {
	r.restInZone()
	r.noteZones()
	r.members.unlogged = true
	if r.young() {
		r.noFloor = "the first entries of the cluster have not been logged yet"
	}
}

// depose ends the leadership. A membership change that was proposed may still be applied.
func (r *Replica) depose() {
	r.noFloor = "" // unknown here: it depends on the next leader's clock
	if c := r.members.change; c != nil {
		r.lead.Reply(&c.asked, lead.Refused{Reason: lead.NotLeader, Uncertain: true})
	}
	r.members.change, r.members.heard = nil, nil
	r.views, r.founding = views{}, founding{}
	r.lead.Depose()
}
