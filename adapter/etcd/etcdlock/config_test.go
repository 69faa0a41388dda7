package etcdlock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdlock"
)

func TestABadConfigIsRefusedWithFieldRuleAndLimit(t *testing.T) {
	cli := connect(t, []string{"127.0.0.1:1"})
	for _, test := range []struct {
		name string
		cfg  etcdlock.Config
		want string
	}{
		{"a TTL that is too short", etcdlock.Config{TTL: time.Millisecond}, "ttl 1ms: must be 1s to 5m0s"},
		{"a TTL that is too long", etcdlock.Config{TTL: time.Hour}, "ttl 1h0m0s: must be 1s to 5m0s"},
		{"a long prefix", etcdlock.Config{Prefix: strings.Repeat("x", 257)}, "is 257 bytes long, the limit is 256"},
		{"a prefix with its slash", etcdlock.Config{Prefix: "locks/"}, `prefix "locks/": must not end with "/"`},
		{"a negative patience", etcdlock.Config{UnavailableAfter: -1}, "unavailable after -1ns: must not be negative"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := etcdlock.New(cli, test.cfg)
			if !errors.Is(err, lockstep.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	if _, err := etcdlock.New(nil, etcdlock.Config{}); !errors.Is(err, lockstep.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
}

func TestATTLIsRoundedUpToWholeSeconds(t *testing.T) {
	l, err := etcdlock.New(connect(t, []string{"127.0.0.1:1"}), etcdlock.Config{TTL: 1200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(t.Context())
	if ttl := l.Capabilities().TTL; ttl != 2*time.Second {
		t.Errorf("ttl %v, want 2s", ttl)
	}
}
