package client

import (
	"testing"
	"time"
)

func TestEveryEndpointIsDialledAsHostAndPort(t *testing.T) {
	cfg := Config{TTL: time.Second}
	for _, addr := range []string{"a.example:7400", "unix:7400", "dns:7400", "[::1]:7400", "[fe80::1%eth0]:7400"} {
		conn, err := cfg.dial(addr)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		if got := conn.Target(); got != targetOf(addr) {
			t.Errorf("%s: dialled as %s", addr, got)
		}
		conn.Close()
	}
}
