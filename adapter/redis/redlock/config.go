package redlock

import (
	"cmp"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// DefaultKeyPrefix is the default prefix of a Locker's keys.
const DefaultKeyPrefix = "lockstep:redlock:"

const (
	minNodes          = 3
	minNodeTimeout    = 5 * time.Millisecond
	nodeTimeoutShare  = 6 // NodeTimeout is at most TTL/6: the two steps end within TTL/3, when the Locker gives up a Take
	maxKeyPrefixBytes = 128
	grace             = 500 * time.Millisecond
)

// Config configures a [Locker]. The zero value is ready for use. Lockers exclude each other if they
// have the same nodes, in any order, and the same KeyPrefix.
type Config struct {
	// TTL is how long a lock lasts on a node without a renewal, 1 s to 300 s. Default: 10 s.
	TTL time.Duration
	// NodeTimeout is how long one step waits for a node, 5 ms to TTL/6. A node that does not answer
	// by then has no vote in that step. Once the outcome of a step is certain, it waits for the
	// remaining nodes only as long again as that took. Default: TTL/20, but at least 100 ms.
	NodeTimeout time.Duration
	// KeyPrefix starts all keys on the nodes, 1 to 128 bytes of printable ASCII. Lockers with
	// different prefixes do not see each other. Default: [DefaultKeyPrefix].
	KeyPrefix string
	// Clock measures leases. Default: [lease.SystemClock].
	Clock lease.Clock
	// UnavailableAfter is how long Acquire keeps trying while no majority answers before it returns
	// [lockstep.ErrUnavailable]. Default: the TTL, limited to 5 s to 15 s.
	UnavailableAfter time.Duration
	// Logger receives the log, such as the warning that a node does not sync each write. Default:
	// [slog.DiscardHandler].
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.TTL = cmp.Or(c.TTL, lockstep.DefaultTTL)
	c.NodeTimeout = cmp.Or(c.NodeTimeout, max(c.TTL/20, 100*time.Millisecond))
	c.KeyPrefix = cmp.Or(c.KeyPrefix, DefaultKeyPrefix)
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
	if highest := c.TTL / nodeTimeoutShare; c.NodeTimeout < minNodeTimeout || c.NodeTimeout > highest {
		return &lockstep.InvalidError{
			Field: "node timeout", Value: c.NodeTimeout.String(),
			Rule: fmt.Sprintf("must be %v to a sixth of the ttl, here %v", minNodeTimeout, highest),
		}
	}
	if c.UnavailableAfter < 0 {
		return &lockstep.InvalidError{Field: "unavailable after", Value: c.UnavailableAfter.String(), Rule: "must not be negative"}
	}
	printable := func(r rune) bool { return r > ' ' && r <= unicode.MaxASCII && r != 0x7f }
	if len(c.KeyPrefix) > maxKeyPrefixBytes || strings.ContainsFunc(c.KeyPrefix, func(r rune) bool { return !printable(r) }) {
		return &lockstep.InvalidError{
			Field: "key prefix", Value: lockstep.Excerpt(c.KeyPrefix),
			Rule: fmt.Sprintf("must be 1 to %d bytes of printable ASCII without spaces", maxKeyPrefixBytes),
		}
	}
	return nil
}

// checkNodes refuses whatever is recognizably wrong without asking the nodes.
func checkNodes(nodes []*redis.Client) error {
	if n := len(nodes); n < minNodes || n > maxNodes || n%2 == 0 {
		return &lockstep.InvalidError{
			Field: "nodes", Value: strconv.Itoa(n),
			Rule: fmt.Sprintf("must be an odd number of masters from %d to %d: an even one bears no more failures than the one below it", minNodes, maxNodes),
		}
	}
	seen := map[string]int{}
	for i, client := range nodes {
		if client == nil {
			return &lockstep.InvalidError{Field: fmt.Sprintf("node %d", i+1), Rule: "must not be nil"}
		}
		o := client.Options()
		field := nodeField(i, o.Addr)
		if o.Addr == sentinelAddress {
			return &lockstep.InvalidError{Field: field, Rule: "must be a master of its own, not one that sentinels choose: a failover would lose its votes"}
		}
		place := fmt.Sprintf("%s/%d", o.Addr, o.DB)
		if first, ok := seen[place]; ok {
			return &lockstep.InvalidError{Field: field, Rule: fmt.Sprintf("is the same server as node %d: its vote would count twice", first+1)}
		}
		seen[place] = i
	}
	return nil
}

// sentinelAddress is what go-redis uses as the address when sentinels choose the master.
const sentinelAddress = "FailoverClient"

// nodeField names a node in errors, counting from 1.
func nodeField(i int, address string) string { return fmt.Sprintf("node %d (%s)", i+1, address) }
