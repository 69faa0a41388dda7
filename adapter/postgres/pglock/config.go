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

// DefaultTable is the name of the table unless another is configured.
const DefaultTable = "lockstep_locks"

const (
	defaultPollEvery = 500 * time.Millisecond
	minPollEvery     = 10 * time.Millisecond
	maxPollEvery     = 10 * time.Second

	minUnavailableAfter = 100 * time.Millisecond
	maxUnavailableAfter = 10 * time.Minute
)

// A Wake says how a waiter learns that a lock is free. All of them poll too.
type Wake int

const (
	// WakeAuto listens unless the connections are those of a pooler, which is found out by the
	// first waiter.
	WakeAuto Wake = iota
	// WakeByNotify listens. It is for a pooler in session mode, which WakeAuto takes for one in
	// transaction mode.
	WakeByNotify
	// WakeByPolling does not listen. PostgreSQL commits transactions that notify one after the
	// other, in all databases of a server. They are sent only while somebody listens for the lock,
	// but that can be too many where many locks are waited for all the time.
	WakeByPolling
)

// Config adjusts a Locker. The zero value is good.
type Config struct {
	// TTL is the time that a lock lives without a renewal: 1 s to 300 s. Default: 10 s.
	TTL time.Duration
	// Table is the table of the locks, with or without its schema: "locks" or "app.locks". Each
	// part is 1 to 63 letters, digits and _, the first of them no digit; case counts. Default:
	// [DefaultTable] in the first schema of the search path.
	Table string
	// Wake says how waiters learn that a lock is free. Default: [WakeAuto].
	Wake Wake
	// PollEvery bounds the jittered wait between two looks at a busy lock: 10 ms to 10 s. Default:
	// 500 ms. Of several waiters of one Locker for one name about one looks in this time.
	PollEvery time.Duration
	// UnavailableAfter is how long Acquire tries to reach a server that does not answer: 100 ms to
	// 10 min. Default: the TTL, but 5 s to 15 s.
	UnavailableAfter time.Duration
	// Clock measures leases on this side. Default: [lease.SystemClock].
	Clock lease.Clock
	// Logger receives the log. Default: [slog.DiscardHandler].
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.TTL = cmp.Or(c.TTL, lockstep.DefaultTTL)
	c.PollEvery = cmp.Or(c.PollEvery, defaultPollEvery)
	c.UnavailableAfter = cmp.Or(c.UnavailableAfter, min(max(c.TTL, 5*time.Second), 15*time.Second))
	if c.Clock == nil {
		c.Clock = lease.SystemClock()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate reports the first field that breaks a rule. The table is checked where its name is
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

// identifier is one part of the name of a table. 63 bytes are what PostgreSQL keeps of it.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// quoteTable returns the name of the table as it is written in statements.
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
