package lead

// The code below runs only with the planted bug mutantForwarded: a deposed leader goes on renewing
// leases, and takes the rounds that Raft forwards to the new leader for its own.

func (l *Lead) holdForwarded(q Request) bool {
	if _, ok := q.Body.(KeepAlive); !ok || l.streams.sessions[q.Session] == nil {
		return false
	}
	return l.rounds.hold(held{Request: q}, false)
}
