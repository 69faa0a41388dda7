package cli

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/lockstep-dev/lockstep/client"
)

const (
	// narrateLook is the pause between two looks at what a command waits for.
	narrateLook = time.Second
	// inspectEvery is after how many looks the holder of a lock is asked for again: it is a read of the service.
	inspectEvery = 5
	// inspectLimit bounds such a read.
	inspectLimit = 3 * time.Second
	// firstReminder is when what was said is said again although it has not changed. The time doubles up to lastReminder.
	firstReminder = time.Minute
	lastReminder  = time.Hour
)

// narrates reports whether somebody reads what a command waits for: the user at a terminal, or who asked for it.
func (a *App) narrates(verbose bool) bool {
	f, ok := a.Err.(*os.File)
	return verbose || ok && term.IsTerminal(int(f.Fd()))
}

// A narrator says on the standard error what a command waits for, when it is new or was said long ago. It decides; it does
// nothing itself.
type narrator struct {
	said     string        // the gist of the last line
	at       time.Duration // when it was said
	reminder time.Duration
	down     int // looks in a row that found no node that serves
}

// outage is the line of a look that found the service out of reach, or nothing. One look alone may have been in an election.
func (n *narrator) outage(now time.Duration, e *client.OutageError) string {
	if e == nil {
		n.down = 0
		return ""
	}
	if n.down++; n.down < 2 {
		return ""
	}
	text := e.List() + ", trying on"
	return n.news(now, text, text)
}

// news is the line, unless its gist was said already and not long ago.
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

// waiting is the line of a look at the lock that is waited for, or nothing.
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

// position is how many waiters are before the one with these labels, or -1.
func position(waiters []claimReport, labels map[string]string) int {
	for i, w := range waiters {
		if w.Metadata["host"] == labels["host"] && w.Metadata["pid"] == labels["pid"] {
			return i
		}
	}
	return -1
}

// every calls look in each narrateLook until stop is called, which waits for a look that is under way.
func every(ctx context.Context, look func(ctx context.Context, round int)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
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
	})
	return func() {
		cancel()
		looking.Wait()
	}
}

// sayOutages says while no node serves what each endpoint answers, until stop is called.
func (a *App) sayOutages(verb string, outage func() *client.OutageError) (stop func()) {
	var n narrator
	began := time.Now()
	return every(context.Background(), func(context.Context, int) {
		if line := n.outage(time.Since(began), outage()); line != "" {
			a.complain(verb, fmt.Errorf("%s", line))
		}
	})
}
