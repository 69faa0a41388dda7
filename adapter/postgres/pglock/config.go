package pglock

import (
	"cmp"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// DefaultTable is the default name of the table.
const DefaultTable = "lockstep_locks"

const (
	defaultPollEvery = 500 * time.Millisecond
	minPollEvery     = 10 * time.Millisecond
	maxPollEvery     = 10 * time.Second

	minUnavailableAfter = 100 * time.Millisecond
	maxUnavailableAfter = 10 * time.Minute
)

// A Wake says how a waiter learns that a lock is free. With all of them waiters also poll.
type Wake int

const (
	// WakeAuto listens unless the connections go through a pooler, which the first waiter detects.
	WakeAuto Wake = iota
	// WakeByNotify listens. It is for a pooler in session mode, which WakeAuto mistakes for
	// transaction mode.
	WakeByNotify
	// WakeByPolling does not listen. PostgreSQL commits transactions that notify one at a time,
	// across all databases of a server. Notifications are sent only while someone is listening for
	// the lock, but that can be too many if many locks always have waiters.
	WakeByPolling
)

// Config configures a Locker. The zero value is ready for use.
type Config struct {
	// TTL is how long a lock lives without a renewal: 1 s to 300 s. Default: 10 s.
	TTL time.Duration
	// Table is the table of the locks, with or without its schema: "locks" or "app.locks". Each
	// part is 1 to 63 letters, digits and _, not starting with a digit; case matters. Default:
	// [DefaultTable] in the first schema of the search path.
	Table string
	// Wake says how waiters learn that a lock is free. Default: [WakeAuto].
	Wake Wake
	// PollEvery bounds the jittered wait between two reads of a busy lock: 10 ms to 10 s. Default:
	// 500 ms. If several claims of one Locker wait for one name, about one of them reads in this
	// time.
	PollEvery time.Duration
	// UnavailableAfter is how long Acquire keeps trying a server that does not answer: 100 ms to 10
	// min. Default: the TTL, limited to 5 s to 15 s.
	UnavailableAfter time.Duration
	// Clock measures leases locally. Default: [lease.SystemClock].
	Clock lease.Clock
	// Logger receives the log. Default: [slog.DiscardHandler].
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.TTL = cmp.Or(c.TTL, lockstep.DefaultTTL)
	c.PollEvery = cmp.Or(c.PollEvery, defaultPollEvery)
	c.UnavailableAfter = cmp.Or(c.UnavailableAfter, lease.Patience(c.TTL))
	if c.Clock == nil {
		c.Clock = lease.SystemClock()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate returns the first field that breaks a rule. The table is checked where its name is
// quoted.
func (c Config) validate() error {
	if c.Wake < WakeAuto || c.Wake > WakeByPolling {
		return &lockstep.InvalidError{Field: "Wake", Value: fmt.Sprint(int(c.Wake)), Rule: "must be WakeAuto, WakeByNotify or WakeByPolling"}
	}
	if err := lockstep.CheckTTL(c.TTL); err != nil {
		return err
	}
	if err := checkRange("PollEvery", c.PollEvery, minPollEvery, maxPollEvery); err != nil {
		return err
	}
	return checkRange("UnavailableAfter", c.UnavailableAfter, minUnavailableAfter, maxUnavailableAfter)
}

func checkRange(field string, d, lowest, highest time.Duration) error {
	if d < lowest || d > highest {
		return &lockstep.InvalidError{Field: field, Value: d.String(), Rule: fmt.Sprintf("must be %v to %v", lowest, highest)}
	}
	return nil
}

// identifier is one part of the name of a table. PostgreSQL truncates it to 63 bytes.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// quoteTable returns the name of the table quoted for statements.
func quoteTable(table string) (string, error) {
	parts := strings.Split(cmp.Or(table, DefaultTable), ".")
	for _, part := range parts {
		if !identifier.MatchString(part) || len(parts) > 2 {
			return "", &lockstep.InvalidError{
				Field: "Table", Value: lockstep.Excerpt(table),
				Rule: "must be table or schema.table, each 1 to 63 letters, digits and _, not beginning with a digit",
			}
		}
	}
	return pgx.Identifier(parts).Sanitize(), nil
}
