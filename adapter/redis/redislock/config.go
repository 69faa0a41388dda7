package redislock

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// DefaultKeyPrefix is the default prefix of all keys.
const DefaultKeyPrefix = "lockstep"

const (
	minUnavailableAfter = 100 * time.Millisecond
	maxUnavailableAfter = 10 * time.Minute
	// maxKeyPrefix bounds the prefix, in bytes. Every key repeats it.
	maxKeyPrefix = 64
)

// Eviction says what to do with a server that may evict keys when its memory is full.
type Eviction int

const (
	// RefuseEviction refuses such a server with [lockstep.ErrUnsupported].
	RefuseEviction Eviction = iota
	// AcceptEviction uses it: under memory pressure any lock may be lost, which its holder learns
	// at its next renewal.
	AcceptEviction
)

// Config configures a Locker.
type Config struct {
	// TTL is how long a lock outlives its holder's last renewal, 1 s to 300 s. Default: 10 s.
	TTL time.Duration
	// UnavailableAfter is how long Acquire keeps trying a server that does not answer, 100 ms to 10
	// min, before it returns [lockstep.ErrUnavailable]. Default: the TTL, limited to 5 s to 15 s.
	UnavailableAfter time.Duration
	// KeyPrefix starts all keys and channels. All programs that contend for the same locks must use
	// the same one, and the same logical database. 1 to 64 printable ASCII characters, no spaces or
	// braces. Default: [DefaultKeyPrefix].
	KeyPrefix string
	// Eviction says whether to use a server that evicts keys. Default: [RefuseEviction].
	Eviction Eviction
	// Logger receives the log. Default: [slog.DiscardHandler].
	Logger *slog.Logger
}

// withDefaults fills in empty fields and checks all.
func (c Config) withDefaults() (Config, error) {
	c.TTL = cmp.Or(c.TTL, lockstep.DefaultTTL)
	c.UnavailableAfter = cmp.Or(c.UnavailableAfter, lease.Patience(c.TTL))
	c.KeyPrefix = cmp.Or(c.KeyPrefix, DefaultKeyPrefix)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if err := lockstep.CheckTTL(c.TTL); err != nil {
		return c, err
	}
	if d := c.UnavailableAfter; d < minUnavailableAfter || d > maxUnavailableAfter {
		return c, &lockstep.InvalidError{
			Field: "UnavailableAfter", Value: d.String(), Rule: fmt.Sprintf("must be %v to %v", minUnavailableAfter, maxUnavailableAfter),
		}
	}
	if c.Eviction != RefuseEviction && c.Eviction != AcceptEviction {
		return c, &lockstep.InvalidError{Field: "eviction", Value: fmt.Sprint(int(c.Eviction)), Rule: "must be RefuseEviction or AcceptEviction"}
	}
	return c, checkKeyPrefix(c.KeyPrefix)
}

// checkKeyPrefix refuses braces, which would change the slot of the keys in a Cluster.
func checkKeyPrefix(prefix string) error {
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '{' || r == '}' }
	if len(prefix) > maxKeyPrefix || strings.ContainsFunc(prefix, odd) {
		return &lockstep.InvalidError{
			Field: "key prefix", Value: lockstep.Excerpt(prefix),
			Rule: fmt.Sprintf("must be 1 to %d printable ASCII characters without spaces and braces", maxKeyPrefix),
		}
	}
	return nil
}

// retryMax is the longest wait between two tries of a waiter that is not woken by a release.
const retryMax = 500 * time.Millisecond

// capabilities are constant: promises that only a standalone server could keep are not made, since
// the Locker does not know whether the server has replicas.
func (c Config) capabilities() lockstep.Capabilities {
	eviction := "A server that may evict keys is refused when it is first used; a later change of its policy is not noticed."
	if c.Eviction == AcceptEviction {
		eviction = "The server may evict locks when its memory is full, and then grants them again."
	}
	return lockstep.Capabilities{
		Backend: "redis",
		TTL:     c.TTL,
		// The server's clock may be 2 % slow, and a waiter may have just asked.
		Grace:      c.TTL/50 + retryMax,
		ClockBound: true,
		Notes: []string{
			"For efficiency only: a failover loses the locks that the replica has not copied yet, and grants them a second time.",
			"A server that starts again without its data has lost all locks.",
			"The token is not safe for a guard: across a failover or a loss of data it rises only if the clocks of the servers agree.",
			"Leases end by the server's clock: when that is set forward they end while their holders believe in them.",
			eviction,
			"Waiters have no order.",
		},
	}
}
