//go:build unix

package filefence

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/fencetest"
)

var errDied = errors.New("the writer died")

// patience is how long a step waits if a test does not want it to give up, even on a busy machine.
const patience = 2 * time.Minute

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path, Config{Wait: patience})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// dieAt makes the next write die at the point, as a killed process would: nothing is cleaned up
// except the lock, which the system releases.
func dieAt(f *File, p point) {
	f.slot.at = func(now point) error {
		if now == p {
			return errDied
		}
		return nil
	}
}

func crashes() []fencetest.Crash {
	var all []fencetest.Crash
	for _, p := range []point{staged, committed, placed} {
		all = append(all, fencetest.Crash{
			Moment: string(p),
			Write: func(t *testing.T, s fencetest.Store, g fence.Grant, value []byte) {
				dieAt(s.(*File), p)
				if err := s.Write(context.Background(), g, value); !errors.Is(err, errDied) {
					t.Errorf("the write did not die: %v", err)
				}
			},
		})
	}
	return all
}

// TestConformance opens the file again for each client, so that they share only the disk. A restart
// needs no more than that.
func TestConformance(t *testing.T) {
	dir := t.TempDir()
	fencetest.Run(t, fencetest.Guard{
		Open: func(t *testing.T, resource string) fencetest.Store {
			return open(t, filepath.Join(dir, strings.ReplaceAll(resource, "/", "_")))
		},
		Crashes: crashes(),
		Restart: func(*testing.T) {},
	})
}

// beside is a value next to its mark, guarded by a Dir, one step at a time.
type beside struct {
	dir      *Dir
	resource string
	file     string
	turn     *turn
}

func (b *beside) step(ctx context.Context, g fence.Grant, s fence.Step, then func() error) error {
	leave, err := b.turn.take(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := b.dir.Admit(ctx, b.resource, g, s); err != nil {
		return err
	}
	return then()
}

func (b *beside) Enter(ctx context.Context, g fence.Grant) error {
	return b.step(ctx, g, fence.Enter, func() error { return nil })
}

func (b *beside) Write(ctx context.Context, g fence.Grant, value []byte) error {
	return b.step(ctx, g, fence.Write, func() error { return b.put(value) })
}

func (b *beside) WriteOnce(ctx context.Context, g fence.Grant, value []byte) error {
	return b.step(ctx, g, fence.WriteOnce, func() error { return b.put(value) })
}

func (b *beside) put(value []byte) error {
	if err := os.WriteFile(b.file+".part", value, 0o600); err != nil {
		return err
	}
	return os.Rename(b.file+".part", b.file)
}

func (b *beside) Delete(ctx context.Context, g fence.Grant) error {
	return b.step(ctx, g, fence.Write, func() error {
		if err := os.Remove(b.file); !os.IsNotExist(err) {
			return err
		}
		return nil
	})
}

func (b *beside) Read(context.Context) ([]byte, error) { return os.ReadFile(b.file) }

// TestConformanceOfDir guards files that know nothing about marks.
func TestConformanceOfDir(t *testing.T) {
	marks, values := t.TempDir(), t.TempDir()
	fencetest.Run(t, fencetest.Guard{
		Open: func(t *testing.T, resource string) fencetest.Store {
			d, err := OpenDir(marks, Config{Wait: patience})
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(values, strings.ReplaceAll(resource, "/", "_"))
			return &beside{dir: d, resource: resource, file: file, turn: newTurn(file+".lock", patience)}
		},
		Restart: func(*testing.T) {},
		Rounds:  10,
	})
}

func grant(token lockstep.Token) fence.Grant {
	return fence.Grant{Backend: "memory:test", Lock: "reports", Token: token}
}
