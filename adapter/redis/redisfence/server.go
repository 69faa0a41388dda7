package redisfence

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/lockstep-dev/lockstep"
)

// oldest is the first version of Redis whose scripts can tell their version.
const oldest = 7

// A server is what probeScript tells of one.
type server struct {
	version   string // empty before Redis 7
	policy    string // maxmemory-policy; empty when the server does not say
	maxMemory string // in bytes; "0" is no limit
}

// refuse says why marks cannot be kept on this server, if they cannot.
func (s server) refuse() error {
	major, _, _ := strings.Cut(s.version, ".")
	number, err := strconv.Atoi(major)
	switch {
	case err != nil || number < oldest:
		return fmt.Errorf("%w: Redis %d or later is needed, the server says that it is version %q", lockstep.ErrUnsupported, oldest, s.version)
	case s.policy == "":
		return fmt.Errorf("%w: the server does not tell its maxmemory-policy: give the user the right to INFO", lockstep.ErrUnsupported)
	case strings.HasPrefix(s.policy, "allkeys-") && s.maxMemory != "0": // other policies spare keys without an expiry
		return fmt.Errorf("%w: the server may evict marks: maxmemory-policy is %s with maxmemory %s, and must be noeviction",
			lockstep.ErrUnsupported, s.policy, s.maxMemory)
	}
	return nil
}

// probe makes sure, once for each bucket, that its server can keep marks. A failure is not kept.
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
