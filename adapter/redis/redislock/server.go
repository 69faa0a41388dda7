package redislock

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lockstep-dev/lockstep"
)

// oldest is the first version of Redis whose scripts meet the needs of the protocol and can read
// the version.
const oldest = 7

// A server holds what probeScript reports.
type server struct {
	version   string // empty before Redis 7
	policy    string // maxmemory-policy; empty if the server does not report it
	maxMemory string // in bytes; "0" is no limit
}

func parseServer(reply any) (server, error) {
	fields, ok := reply.([]any)
	if !ok || len(fields) != 2 {
		return server{}, fmt.Errorf("%w: the server answers a probe with %v", lockstep.ErrUnavailable, reply)
	}
	version, _ := fields[0].(string)
	memory, _ := fields[1].(string)
	return server{
		version: version, policy: infoField(memory, "maxmemory_policy"), maxMemory: infoField(memory, "maxmemory"),
	}, nil
}

// infoField finds a field in a reply of INFO, which consists of lines "name:value".
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// refuse returns why locks cannot be kept on this server, or nil.
func (s server) refuse(e Eviction) error {
	major, _, _ := strings.Cut(s.version, ".")
	if number, err := strconv.Atoi(major); err != nil || number < oldest {
		version := "an older version"
		if s.version != "" {
			version = s.version
		}
		return fmt.Errorf("%w: Redis %d or later is needed, the server is %s", lockstep.ErrUnsupported, oldest, version)
	}
	if e == RefuseEviction && s.evicts() {
		return fmt.Errorf("%w: the server may evict locks: maxmemory-policy is %s with maxmemory %s, and must be noeviction (or set Config.Eviction to AcceptEviction)",
			lockstep.ErrUnsupported, s.policy, s.maxMemory)
	}
	return nil
}

// evicts reports whether the server evicts keys when its memory is full.
func (s server) evicts() bool {
	return s.policy != "" && s.policy != "noeviction" && s.maxMemory != "0"
}
