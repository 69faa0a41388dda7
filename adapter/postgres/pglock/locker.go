package pglock

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// A Locker hands out locks that are rows of a table. It implements [lockstep.Locker],
// [lockstep.Inspector], [lockstep.Watcher] and [lockstep.Detacher].
type Locker struct {
	locker.Detacher
	backend *backend
}

var (
	_ lockstep.Detacher  = (*Locker)(nil)
	_ lockstep.Inspector = (*Locker)(nil)
	_ lockstep.Watcher   = (*Locker)(nil)
)

// New makes a Locker on the pool. The caller still owns the pool, which must stay open until the
// Locker is closed. New sends nothing and starts nothing: the first Acquire reports a missing table
// as [ErrTable]. A Config that breaks a rule is a [*lockstep.InvalidError].
func New(pool *pgxpool.Pool, c Config) (*Locker, error) {
	if pool == nil {
		return nil, &lockstep.InvalidError{Field: "pool", Rule: "must not be nil"}
	}
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	table, err := quoteTable(c.Table)
	if err != nil {
		return nil, err
	}
	b := newBackend(pool, c, table)
	kit := locker.New(b, locker.Config{
		Capabilities:     capabilities(c),
		UnavailableAfter: c.UnavailableAfter,
		RetryMax:         c.PollEvery,
		Clock:            c.Clock,
		Logger:           c.Logger,
	})
	return &Locker{Detacher: locker.Detacher{Locker: kit}, backend: b}, nil
}

func capabilities(c Config) lockstep.Capabilities {
	return lockstep.Capabilities{
		Backend: "postgres",
		TTL:     c.TTL,
		// The server's clock may run this much slower than others.
		Grace:            lease.Margin(c.TTL),
		Fenced:           true,
		SurvivesFailover: true,
		Notes: []string{
			"A failover keeps locks and tokens only if it goes to a synchronous standby (synchronous_standby_names); after one to an asynchronous standby two holders may believe in a lock for up to one TTL.",
			"Leases end by the server's clock: one that is set ahead ends them early, and one that is set back makes dead holders last longer. Let it be slewed, not stepped.",
			"Waiters are not served in the order in which they came.",
			"Behind a pooler in transaction mode waiters learn of a free lock by polling.",
			"Each acquire, renewal and release is one committed write; the rows of free locks stay in the table for their tokens.",
		},
	}
}
