package zkserver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/internal/testbed/zkserver"
)

func TestAnotherServerLeadsWhenTheLeaderIsKilled(t *testing.T) {
	e, err := zkserver.Start(zkserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	first, err := e.Leader()
	if err != nil {
		t.Fatal(err)
	}
	e.Kill(first)
	second := awaitLeader(t, e)
	if second == first {
		t.Errorf("server %d leads after it was killed", first)
	}
	if err := e.Start(first); err != nil {
		t.Error(err)
	}
}

func awaitLeader(t *testing.T, e *zkserver.Ensemble) int {
	t.Helper()
	var last error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		leader, err := e.Leader()
		if err == nil {
			return leader
		}
		last = err
	}
	t.Fatal(last)
	return 0
}

func TestOneServerStandsAlone(t *testing.T) {
	e, err := zkserver.Start(zkserver.Config{Dir: t.TempDir(), Servers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if leader, err := e.Leader(); err != nil || leader != 0 || len(e.Addresses()) != 1 {
		t.Errorf("leader %d of %v: %v", leader, e.Addresses(), err)
	}
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	for what, cfg := range map[string]zkserver.Config{
		"no directory": {},
		"two servers":  {Dir: t.TempDir(), Servers: 2},
		"slow ticks":   {Dir: t.TempDir(), TickTime: time.Minute},
	} {
		if e, err := zkserver.Start(cfg); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
			if err == nil {
				e.Close()
			}
		}
	}
}
