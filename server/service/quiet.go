package service

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A quiet logger writes each message at most once a second, with the number of omitted lines. What
// clients can cause as often as they like must not fill the disk.
type quiet struct {
	log *slog.Logger
	now func() time.Time

	mu struct {
		sync.Mutex
		last map[string]*line // by message: constants of this package, so few
	}
}

type line struct {
	written time.Time
	omitted int
}

func newQuiet(log *slog.Logger) *quiet {
	q := &quiet{log: log, now: time.Now}
	q.mu.last = map[string]*line{}
	return q
}

// warn logs msg, which must be a constant, unless it was logged within the last second.
func (q *quiet) warn(msg string, attrs ...slog.Attr) {
	omitted, ok := q.admit(msg)
	if !ok {
		return
	}
	if omitted > 0 {
		attrs = append(attrs, slog.Int("omitted", omitted))
	}
	q.log.LogAttrs(context.Background(), slog.LevelWarn, msg, attrs...)
}

func (q *quiet) admit(msg string) (omitted int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.mu.last[msg]
	if l == nil {
		l = &line{}
		q.mu.last[msg] = l
	}
	now := q.now()
	if !l.written.IsZero() && now.Sub(l.written) < time.Second {
		l.omitted++
		return 0, false
	}
	omitted, l.omitted, l.written = l.omitted, 0, now
	return omitted, true
}
