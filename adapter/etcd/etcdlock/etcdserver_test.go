package etcdlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/internal/testbed/etcdserver"
)

func TestAClusterLivesThroughTheDeathOfItsLeader(t *testing.T) {
	c, err := etcdserver.Start(t.TempDir(), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if n := len(c.Endpoints()); n != 3 {
		t.Errorf("%d endpoints, want 3", n)
	}
	first, err := c.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.Kill(first)
	second, err := c.Leader(ctx)
	if err != nil || second == first {
		t.Fatalf("leader %d after the death of %d, err %v", second, first, err)
	}
	if err := c.Start(first); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Leader(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestASizeThatIsNoneIsRefused(t *testing.T) {
	if _, err := etcdserver.Start(t.TempDir(), 2); err == nil || !strings.Contains(err.Error(), "must be 1 or 3") {
		t.Errorf("start of 2 members: %v", err)
	}
}

func TestAMissingProgramIsNamed(t *testing.T) {
	t.Setenv("LOCKSTEP_ETCD", "/nowhere/etcd")
	if _, err := etcdserver.Start(t.TempDir(), 1); err == nil || !strings.Contains(err.Error(), "LOCKSTEP_ETCD") {
		t.Errorf("start without the program: %v", err)
	}
	t.Setenv("LOCKSTEP_ETCD", "")
	t.Setenv("PATH", "")
	t.Chdir(t.TempDir())
	if _, err := etcdserver.Start(t.TempDir(), 1); err == nil || !strings.Contains(err.Error(), "make tools") {
		t.Errorf("start without the program: %v", err)
	}
}
