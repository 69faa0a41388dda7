package zklock

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/internal/testbed/zkserver"
)

// The library keeps a channel for each requested watch until it fires. A program that repeatedly
// waits for a lock that stays held must not accumulate them, or anything else.
func TestWaitingAgainAndAgainPilesUpNothing(t *testing.T) {
	e, err := zkserver.Start(zkserver.Config{Dir: t.TempDir(), Servers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	l, err := New(Config{Servers: e.Addresses(), TTL: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(t.Context())
	held, err := l.Acquire(t.Context(), "pile")
	if err != nil {
		t.Fatal(err)
	}
	for range 30 {
		if _, err := l.Acquire(t.Context(), "pile", lockstep.WithWait(10*time.Millisecond)); !errors.Is(err, lockstep.ErrBusy) {
			t.Errorf("acquire: %v, want ErrBusy", err)
		}
	}
	s := l.backend.mu.session
	watches := func() int {
		s.watches.Lock()
		defer s.watches.Unlock()
		return len(s.watches.changed)
	}
	claims := func() int {
		l.backend.mu.Lock()
		defer l.backend.mu.Unlock()
		return len(l.backend.mu.claims)
	}
	for end := time.Now().Add(5 * time.Second); claims() > 1 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // the last ones are being undone
	}
	if claims() != 1 || watches() != 1 {
		t.Errorf("%d claims and %d watches, want that of the holder alone", claims(), watches())
	}
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
