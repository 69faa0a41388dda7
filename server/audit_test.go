package server_test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep/internal/testbed"
	"github.com/lockstep-dev/lockstep/server"
)

func TestTheAuditLogGoesOnAfterARestart(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	free, err := testbed.Addresses(1)
	if err != nil {
		t.Fatal(err)
	}
	address := free[0] // the identity of the cluster
	for _, name := range []string{"first", "second", "third"} {
		peer, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		s, err := server.New(server.Config{
			Name: "n1", DataDir: filepath.Join(dir, "data"), InitialCluster: map[string]string{"n1": address},
			Listen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0", Listeners: server.Listeners{Peer: peer},
			AuditLog: path, Logger: logger(),
		})
		if err != nil {
			t.Fatal(err)
		}
		r := start(t, s.Run)
		serving(t, s)
		if _, err := grant(patient(t), api(t, s.Addresses().Client), name); err != nil {
			t.Fatal(err)
		}
		r.stop()
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
	if len(lines) != 3 {
		t.Fatalf("%d events, want 3:\n%s", len(lines), text)
	}
	for i, name := range []string{"first", "second", "third"} {
		var e struct {
			Number     int
			Kind, Name string
		}
		if err := json.Unmarshal([]byte(lines[i]), &e); err != nil || e.Number != i+1 || e.Kind != "granted" || e.Name != name {
			t.Errorf("event %d: %s", i+1, lines[i])
		}
	}
}

func TestAnAuditLogThatCannotBeOpenedIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "audit.log")
	s, err := server.New(server.Config{
		Name: "n1", DataDir: t.TempDir(), Listen: "127.0.0.1:0", PeerListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0",
		AuditLog: path, Logger: logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(patient(t)); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("Run gave %v", err)
	}
}
