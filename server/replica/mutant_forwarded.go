package replica

// The code below runs only with the planted bug mutantForwarded: a deposed leader goes on renewing
// leases, and takes the rounds that Raft forwards to the new leader for its own.

func (r *Replica) holdForwarded(q Request) bool {
	if _, ok := q.Body.(KeepAlive); !ok || r.lead.sessions[q.Session] == nil {
		return false
	}
	return r.lead.rounds.hold(held{Request: q}, false)
}

func (r *Replica) leadForwarded() {
	r.serveConfirmed()
	r.startRound()
	r.drain()
	r.serveConfirmed()
}
