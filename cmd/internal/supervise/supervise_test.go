//go:build linux

package supervise

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/memlock"
)

// A world is a lock in memory, and the events reported about it.
type world struct {
	space    *memlock.Space
	dir      string
	reported []Event
}

func newWorld(t *testing.T) *world {
	return &world{space: memlock.NewSpace(memlock.WithTTL(3 * time.Second)), dir: t.TempDir()}
}

func (w *world) claim() Claim {
	return Claim{
		Open:   func() (lockstep.Locker, error) { return w.space.Locker(), nil },
		Name:   "x",
		Report: func(e Event) { w.reported = append(w.reported, e) },
	}
}

// shell is a command that runs in the directory of the world.
func (w *world) shell(line string) Command {
	return Command{
		Path: "/bin/sh", Args: []string{"sh", "-c", "cd " + w.dir + "; " + line},
		Env:       func(lockstep.Lock) []string { return os.Environ() },
		KillAfter: 200 * time.Millisecond,
	}
}

// whenUp calls then once the command has created the file.
func (w *world) whenUp(t *testing.T, file string, then func()) {
	go func() {
		for range 20000 {
			if _, err := os.Stat(filepath.Join(w.dir, file)); err == nil {
				then()
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Errorf("no file %s", file)
	}()
}

func (w *world) isFree(t *testing.T) {
	t.Helper()
	if state, err := w.space.Locker().Inspect(t.Context(), "x"); err != nil || len(state.Holders) > 0 {
		t.Errorf("the lock is %+v, %v, want it free", state, err)
	}
}

func TestARunReturnsTheCodeOfItsCommandAndFreesTheLock(t *testing.T) {
	w := newWorld(t)
	h, err := Acquire(t.Context(), w.claim())
	if err != nil {
		t.Fatal(err)
	}
	if code, err := h.Run(w.shell("exit 3")); code != 3 || err != nil {
		t.Errorf("code %d, %v, want 3", code, err)
	}
	w.isFree(t)
	if len(w.reported) > 0 {
		t.Errorf("reported %#v, want nothing", w.reported)
	}
}

func TestARunLosesARevokedLock(t *testing.T) {
	w := newWorld(t)
	h, err := Acquire(t.Context(), w.claim())
	if err != nil {
		t.Fatal(err)
	}
	w.whenUp(t, "up", func() { w.space.Revoke("x", "alice") })
	_, err = h.Run(w.shell("touch up; exec sleep 1000"))
	lost, ok := errors.AsType[*LostError](err)
	if !ok || !lost.Started || !revoked(lost.Err) {
		t.Errorf("error %#v, want a LostError of a revoked lock", err)
	}
	w.isFree(t)
}

func TestElectLeadsAgainAfterALossUntilTheCommandEnds(t *testing.T) {
	w := newWorld(t)
	w.whenUp(t, "up", func() { w.space.Revoke("x", "alice") })
	code, err := Elect(t.Context(), Candidate{Claim: w.claim(), Identity: "a"}, w.shell("if [ -e up ]; then exit 5; fi; touch up; exec sleep 1000"))
	if code != 5 || err != nil {
		t.Errorf("code %d, %v, want 5", code, err)
	}
	if len(w.reported) != 1 || !errors.Is(w.reported[0].(TermLost).Err, lockstep.ErrLost) {
		t.Errorf("reported %#v, want the loss of a term", w.reported)
	}
	w.isFree(t)
}

func TestElectRefusesAnUnprintableIdentity(t *testing.T) {
	w := newWorld(t)
	if _, err := Elect(t.Context(), Candidate{Claim: w.claim(), Identity: "a\x00"}, w.shell("exit 3")); !errors.Is(err, lockstep.ErrInvalid) {
		t.Errorf("error %v, want ErrInvalid", err)
	}
}
