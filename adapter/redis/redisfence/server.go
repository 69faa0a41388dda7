package redisfence

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/lockstep-dev/lockstep"
)

// oldest is the first version of Redis whose scripts can read the version.
const oldest = 7

// A server holds what probeScript reports.
type server struct {
	version   string // empty before Redis 7
	policy    string // maxmemory-policy; empty if the server does not report it
	maxMemory string // in bytes; "0" is no limit
}

// refuse returns why marks cannot be kept on this server, or nil.
func (s server) refuse() error {
	major, _, _ := strings.Cut(s.version, ".")
	number, err := strconv.Atoi(major)
	switch {
	case err != nil || number < oldest:
		return fmt.Errorf("%w: Redis %d or later is needed, the server says that it is version %q", lockstep.ErrUnsupported, oldest, s.version)
	case s.policy == "":
		return fmt.Errorf("%w: the server does not tell its maxmemory-policy: give the user the right to INFO", lockstep.ErrUnsupported)
	case strings.HasPrefix(s.policy, "allkeys-") && s.maxMemory != "0": // other policies do not evict keys without an expiry
		return fmt.Errorf("%w: the server may evict marks: maxmemory-policy is %s with maxmemory %s, and must be noeviction",
			lockstep.ErrUnsupported, s.policy, s.maxMemory)
	}
	return nil
}

// probe checks, once per bucket, that its server can keep marks. A failure is not remembered.
func (g *Guard) probe(ctx context.Context, k keys) error {
	if g.probed[k.bucket].Load() {
		return nil
	}
	reply, err := g.eval(ctx, probeScript, []string{k.mark}, nil)
	if err != nil {
		return unavailable(err)
	}
	if len(reply) != 4 {
		return fmt.Errorf("%w: the server answers a probe with %q", lockstep.ErrUnavailable, reply)
	}
	if err := (server{version: reply[1], policy: reply[2], maxMemory: reply[3]}).refuse(); err != nil {
		return err
	}
	g.probed[k.bucket].Store(true)
	return nil
}
