package etcdlock

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// Config configures how a [Locker] uses etcd.
type Config struct {
	// TTL is how long the locks of a dead process stay closed to others. etcd counts whole seconds,
	// so the TTL is rounded up, and etcd has its own minimum, 3/2 of its election timeout, which is
	// 2 s by default. The TTL that etcd grants counts: see [Locker.Capabilities]. Default:
	// [lockstep.DefaultTTL]. Bounds: [lockstep.MinTTL] to [lockstep.MaxTTL].
	TTL time.Duration

	// Prefix starts all keys, followed by "/". Lockers with the same Prefix on the same etcd
	// contend for the same names. The client's user needs permission to read and write all keys
	// that begin with Prefix and "/". Default: "lockstep". Bounds: 1 to 256 bytes.
	Prefix string

	// UnavailableAfter is how long Acquire and Inspect keep trying an etcd that does not answer
	// before they return [lockstep.ErrUnavailable]. Default: the TTL, limited to 5 s to 15 s. It
	// must not be negative.
	UnavailableAfter time.Duration

	// Clock measures the lease. Default: [lease.SystemClock].
	Clock lease.Clock

	// Logger receives the log. Default: [slog.DiscardHandler].
	Logger *slog.Logger
}

// maxPrefixBytes keeps keys readable in a listing.
const maxPrefixBytes = 256

func (c Config) withDefaults() Config {
	c.TTL = cmp.Or(c.TTL, lockstep.DefaultTTL)
	c.Prefix = cmp.Or(c.Prefix, "lockstep")
	if c.UnavailableAfter == 0 {
		c.UnavailableAfter = lease.Patience(c.TTL)
	}
	if c.Clock == nil {
		c.Clock = lease.SystemClock()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if err := lockstep.CheckTTL(c.TTL); err != nil {
		return err
	}
	if len(c.Prefix) > maxPrefixBytes {
		return &lockstep.InvalidError{
			Field: "prefix", Value: lockstep.Excerpt(c.Prefix),
			Rule: fmt.Sprintf("is %d bytes long, the limit is %d", len(c.Prefix), maxPrefixBytes),
		}
	}
	if strings.HasSuffix(c.Prefix, "/") {
		return &lockstep.InvalidError{Field: "prefix", Value: lockstep.Excerpt(c.Prefix), Rule: `must not end with "/", which is added`}
	}
	if c.UnavailableAfter < 0 {
		return &lockstep.InvalidError{Field: "unavailable after", Value: c.UnavailableAfter.String(), Rule: "must not be negative"}
	}
	return nil
}

// seconds is the TTL as etcd counts it.
func (c Config) seconds() int64 { return int64((c.TTL + time.Second - 1) / time.Second) }
