package service

import "time"

// A meter bounds the requests of one stream per second, with bursts of one second's worth.
// The zero time is the start. It is not safe for concurrent use.
type meter struct {
	perRequest time.Duration
	paidUntil  time.Time // when what was taken so far has been paid for
}

func newMeter(perSecond int) *meter {
	return &meter{perRequest: max(1, time.Second/time.Duration(perSecond))}
}

// take notes n requests at now, and returns how long the stream has to pause until it is within
// its bound again; zero if it is.
func (m *meter) take(now time.Time, n int) time.Duration {
	if m.paidUntil.Before(now) {
		m.paidUntil = now
	}
	m.paidUntil = m.paidUntil.Add(time.Duration(n) * m.perRequest)
	return max(0, m.paidUntil.Sub(now)-time.Second)
}
