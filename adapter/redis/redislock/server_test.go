package redislock

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep"
)

func TestServersThatLocksAreKeptOn(t *testing.T) {
	const limited = "# Memory\r\nmaxmemory:1000\r\nmaxmemory_human:1000B\r\nmaxmemory_policy:"
	for _, c := range []struct {
		name, version, memory string
		eviction              Eviction
		refused               string // part of the error; empty: it is used
	}{
		{"Redis 7 without a limit", "7.0.15", "maxmemory:0\r\nmaxmemory_policy:noeviction\r\n", RefuseEviction, ""},
		{"a later one", "8.2.1", "maxmemory:0\r\nmaxmemory_policy:noeviction\r\n", RefuseEviction, ""},
		{"a policy without a limit evicts nothing", "7.2.4", "maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n", RefuseEviction, ""},
		{"a limit that refuses writes", "7.2.4", limited + "noeviction\r\n", RefuseEviction, ""},
		{"a limit that evicts", "7.2.4", limited + "volatile-ttl\r\n", RefuseEviction, "volatile-ttl"},
		{"a limit that evicts, accepted", "7.2.4", limited + "volatile-ttl\r\n", AcceptEviction, ""},
		{"no right to ask", "7.2.4", "", RefuseEviction, ""},
		{"Redis 6, which cannot tell its version", "", "", RefuseEviction, "Redis 7 or later is needed, the server is an older version"},
		{"a version below 7", "6.9.0", "", AcceptEviction, "the server is 6.9.0"},
		{"a version that is none", "seven", "", AcceptEviction, "the server is seven"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := parseServer([]any{c.version, c.memory})
			if err != nil {
				t.Fatal(err)
			}
			switch err := s.refuse(c.eviction); {
			case c.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.refused != "" && (!errors.Is(err, lockstep.ErrUnsupported) || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("error %v, want ErrUnsupported with %q", err, c.refused)
			}
		})
	}
}

func TestKeysOfALockAreInOneSlotWhateverItsName(t *testing.T) {
	for _, name := range []string{"job", "a/{b}/c", "}{", "{}"} {
		k := keysOf("lockstep", name)
		if tag(k.record) != tag(k.counter) || len(tag(k.record)) != 2 {
			t.Errorf("%q: keys %q and %q", name, k.record, k.counter)
		}
	}
	// It is part of the protocol that programs of all versions share, and must not change.
	want := keys{record: "lockstep:{26}:lock:billing/nightly", counter: "lockstep:{26}:token"}
	if got := keysOf("lockstep", "billing/nightly"); got != want {
		t.Errorf("keys %+v, want %+v", got, want)
	}
}

// tag is the part of a key that Redis Cluster hashes.
func tag(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	inner, _, _ := strings.Cut(rest, "}")
	return inner
}
