package audit

import (
	"log/slog"
	"time"
)

const (
	// patience is how long a gap waits for peers that cannot be asked or have not got that far
	// themselves: longer than a node takes to restart. Meanwhile the queue of newer events fills,
	// and overflows after half a minute at the rate that it is designed for; that is a second gap,
	// and the same peers have its events.
	patience = 2 * time.Minute
	// retryEvery is the time between two rounds of asking all peers.
	retryEvery = 2 * time.Second
)

// A search decides when peers are asked for a gap and when it is given up. The zero value is the
// search of a log without a gap.
type search struct {
	began time.Time // start of the rounds in which no peer has given a line; zero: there was none
	next  time.Time // the next round
	// vain: patience ran out; until a peer gives a line again, further gaps get one round each.
	vain   bool
	asking bool // the gap was logged
}

func (s *search) due(now time.Time) bool { return !now.Before(s.next) }

// begin logs a gap, once until it is filled.
func (s *search) begin(log *slog.Logger, g gap) {
	if !s.asking {
		s.asking = true
		log.Info("the audit log is missing events: asking the peers", "from", g.from, "to", g.to-1)
	}
}

// end is called when nothing is missing.
func (s *search) end(log *slog.Logger) {
	if s.asking {
		log.Info("the audit log has caught up")
	}
	*s = search{}
}

// found is called when a peer has given lines.
func (s *search) found() { *s = search{asking: s.asking} }

// nothing is called after a round without a line. later says that a peer may have some later. over
// reports that the gap is given up.
func (s *search) nothing(now time.Time, later bool) (over bool) {
	if s.began.IsZero() {
		s.began = now
	}
	if later && !s.vain && now.Sub(s.began) < patience {
		s.next = now.Add(retryEvery)
		return false
	}
	*s = search{asking: s.asking, vain: s.vain || later}
	return true
}
