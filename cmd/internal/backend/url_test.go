package backend_test

import (
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep/cmd/internal/backend"
)

func TestURLsThatTheirOwnToolsTakeAreTaken(t *testing.T) {
	for _, text := range []string{
		"lockstep://127.0.0.1:7400,[::1]:7410", "redis://127.0.0.1", "rediss://u:p%40@cache:6380/3", "redlock://a,b,c", "zk://a,b:2182/x?tick=500ms",
		"etcds://u:p@a:2379", "postgres://u@h1,h2:5433/app?pool_max_conns=2", "postgres:///app?host=/var/run/postgresql",
	} {
		if _, err := backend.Parse(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestABadURLIsRefusedWithoutItsPassword(t *testing.T) {
	for text, want := range map[string]string{
		"foo":                     "must be a URL",
		"mysql://a":               "unknown scheme",
		"redis://":                "host:port",
		"redis://a,,b":            "host:port",
		"redis://u:secret@a/x":    "number of a database",
		"redis://u:secret@a:0":    "host:port",
		"zk://a?tick=soon":        "tickTime",
		"zk://a?x=1":              "does not support",
		"etcd://a/path":           "takes no path",
		"postgres://u:secret@%zz": "psql",
	} {
		_, err := backend.Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
