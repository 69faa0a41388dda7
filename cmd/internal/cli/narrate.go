package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
)

const (
	// narrateLook is the interval between checks of what a command waits for.
	narrateLook = time.Second
	// inspectEvery is the number of checks after which the holder of a lock is read again from the
	// service.
	inspectEvery = 5
	// inspectLimit bounds the time of such a read.
	inspectLimit = 3 * time.Second
	// firstReminder is when an unchanged message is repeated. The interval doubles up to
	// lastReminder.
	firstReminder = time.Minute
	lastReminder  = time.Hour
)

// narrates reports whether to say what a command waits for: at a terminal, or on request.
func (a *App) narrates(verbose bool) bool {
	f, ok := a.Err.(*os.File)
	return verbose || ok && term.IsTerminal(int(f.Fd()))
}

// A narrator decides what to report on standard error about a wait: what is new, or was said long
// ago. It does nothing itself.
type narrator struct {
	said     string        // the gist of the last line
	at       time.Duration // when it was said
	reminder time.Duration
	down     int // consecutive checks that found no serving node
}

// outage returns the line for a check that could not reach the service, or "". A single such check
// may have hit an election.
func (n *narrator) outage(now time.Duration, e *client.OutageError) string {
	if e == nil {
		n.down = 0
		return ""
	}
	if n.down++; n.down < 2 {
		return ""
	}
	text := e.List() + ", still trying"
	return n.news(now, text, text)
}

// news returns the line, or "" if its gist was already said recently.
func (n *narrator) news(now time.Duration, gist, line string) string {
	switch {
	case gist != n.said:
		n.reminder = firstReminder
	case now-n.at < n.reminder:
		return ""
	default:
		n.reminder = min(2*n.reminder, lastReminder)
	}
	n.said, n.at = gist, now
	return line
}

// waiting returns the line for a check of the requested lock, or "".
func (n *narrator) waiting(now time.Duration, name string, s lockReport, ahead int, wall time.Time) string {
	gist, since := "not held", ""
	if len(s.Holders) > 0 {
		h := s.Holders[0]
		gist, since = "held by "+h.who(), " for "+age(wall, h.Since.Time)
		if more := s.HolderCount - 1; more > 0 {
			since += fmt.Sprintf(" and %d more", more)
		}
	}
	queue := ""
	switch {
	case ahead == 0:
		queue = ", next in the queue"
	case ahead > 0:
		queue = fmt.Sprintf(", %d ahead", ahead)
	}
	return n.news(now, gist+queue, "waiting for "+printable(name)+": "+gist+since+queue)
}

// position returns how many waiters are ahead of the one with these labels, or -1.
func position(waiters []claimReport, labels map[string]string) int {
	for i, w := range waiters {
		if w.Metadata["host"] == labels["host"] && w.Metadata["pid"] == labels["pid"] {
			return i
		}
	}
	return -1
}

// stopLook bounds how long stop waits for a call in progress. It may be blocked writing to a pipe
// that nobody reads, and must not keep a lock from being used or released.
const stopLook = 100 * time.Millisecond

// every calls look once per narrateLook until stop is called. stop waits a little for a call in
// progress.
func every(ctx context.Context, look func(ctx context.Context, round int)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(narrateLook)
		defer tick.Stop()
		for round := 0; ; round++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				look(ctx, round)
			}
		}
	}()
	return func() {
		cancel()
		select {
		case <-over:
		case <-time.After(stopLook):
		}
	}
}

// sayOutages reports, while no node is serving, what each endpoint answers, until stop is called.
func (a *App) sayOutages(verb string, outage func() *client.OutageError) (stop func()) {
	var n narrator
	began := time.Now()
	return every(context.Background(), func(context.Context, int) {
		if line := n.outage(time.Since(began), outage()); line != "" {
			a.complain(verb, fmt.Errorf("%s", line))
		}
	})
}

// narrate reports what a claim is waiting for, until stop is called.
func (a *App) narrate(ctx context.Context, plan claimPlan, locker lockstep.Locker) (stop func()) {
	var n narrator
	began := time.Now()
	return every(ctx, func(ctx context.Context, round int) {
		var e *client.OutageError
		if l, ok := locker.(interface{ Outage() *client.OutageError }); ok {
			e = l.Outage()
		}
		line := n.outage(time.Since(began), e)
		if e == nil && round%inspectEvery == 0 {
			line = n.situation(ctx, plan, locker, began)
		}
		if line != "" && ctx.Err() == nil {
			a.complain(plan.verb, errors.New(line))
		}
	})
}

// situation asks who holds the lock.
func (n *narrator) situation(ctx context.Context, plan claimPlan, locker lockstep.Locker, began time.Time) string {
	inspector, ok := locker.(lockstep.Inspector)
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	state, err := inspector.Inspect(ctx, plan.name)
	if err != nil { // narrate reports the outage itself
		return ""
	}
	report := reportState(state)
	return n.waiting(time.Since(began), plan.name, report, position(report.Waiters, plan.labels), time.Now())
}
