//go:build unix

package filefence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// names lists the files next to path.
func names(t *testing.T, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestTheLayoutIsTheDocumentedOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	f := open(t, path)
	if err := f.Write(t.Context(), grant(7), []byte("data\n")); err != nil {
		t.Fatal(err)
	}
	if err := f.Enter(t.Context(), grant(8)); err != nil {
		t.Fatal(err)
	}
	if got, want := names(t, path), []string{"report", "report.fence", "report.fence.lock"}; !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	data, _ := os.ReadFile(path)
	if string(data) != "data\n" {
		t.Errorf("a plain reader sees %q", data)
	}
	mark, _ := os.ReadFile(path + ".fence")
	want := `{"format":1,"mark":{"backend":"memory:test","lock":"reports","token":"8","written":"7"},"version":1}` + "\n"
	if string(mark) != want {
		t.Errorf("the mark is %s, want %s", mark, want)
	}
	if err := f.Delete(t.Context(), grant(8)); err != nil {
		t.Fatal(err)
	}
	if got, want := names(t, path), []string{"report.fence", "report.fence.lock"}; !slices.Equal(got, want) {
		t.Errorf("after deletion files %q, want %q", got, want)
	}
}

func TestWhatADeadWriterLeftIsTidiedUp(t *testing.T) {
	for _, p := range []point{staged, committed, placed} {
		for _, deletes := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "report")
			f := open(t, path)
			if err := f.Write(t.Context(), grant(6), []byte("old")); err != nil {
				t.Fatal(err)
			}
			dieAt(f, p)
			err := f.Write(t.Context(), grant(7), []byte("lost"))
			if deletes {
				dieAt(f, p)
				err = f.Delete(t.Context(), grant(7))
			}
			if err == nil {
				t.Fatalf("%s: the writer did not die", p)
			}
			if err := open(t, path).Write(t.Context(), grant(7), []byte("new")); err != nil {
				t.Fatal(err)
			}
			if got, want := names(t, path), []string{"report", "report.fence", "report.fence.lock"}; !slices.Equal(got, want) {
				t.Errorf("%s: files %q, want %q", p, got, want)
			}
		}
	}
}

func TestAnUnfinishedWriteSaysThatItMayTakeEffect(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "report"))
	dieAt(f, placed)
	if err := f.Write(t.Context(), grant(7), nil); !errors.Is(err, lockstep.ErrUncertain) || fence.Refused(err) {
		t.Errorf("err = %v, want ErrUncertain", err)
	}
}

// TestALeftoverOfAnotherTimeIsNotTakenForData leaves the data of a write that never took effect,
// and continues: it must not come back.
func TestALeftoverOfAnotherTimeIsNotTakenForData(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	f := open(t, path)
	dieAt(f, staged)
	f.Write(t.Context(), grant(5), []byte("abandoned"))
	f = open(t, path)
	for _, step := range []func() error{
		func() error { return f.Enter(t.Context(), grant(6)) },
		func() error { return f.Delete(t.Context(), grant(6)) },
		func() error { return f.Enter(t.Context(), grant(7)) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := f.Read(t.Context()); !os.IsNotExist(errors.Unwrap(err)) {
		t.Errorf("read %q, %v, want nothing", data, err)
	}
}

func TestPathsThatCannotBeGuardedAreRefused(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "report"), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", dir, ".", "..", "/", link, filepath.Join(dir, "report.fence"), filepath.Join(dir, "report.fence.7")} {
		if _, err := Open(path, Config{}); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", path, err)
		}
	}
	if _, err := Open(filepath.Join(dir, "nowhere", "report"), Config{}); !os.IsNotExist(errors.Unwrap(err)) {
		t.Errorf("no directory: %v", err)
	}
	for _, cfg := range []Config{{Wait: -1}, {Perm: 0o444}, {Perm: os.ModeDir | 0o755}} {
		if _, err := Open(filepath.Join(dir, "report"), cfg); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", cfg, err)
		}
	}
}

// TestOneFileHasOneMark opens the same file through a link to its directory and by a relative
// path.
func TestOneFileHasOneMark(t *testing.T) {
	dir := t.TempDir()
	alias := filepath.Join(t.TempDir(), "alias")
	if err := os.Symlink(dir, alias); err != nil {
		t.Fatal(err)
	}
	if err := open(t, filepath.Join(dir, "report")).Write(t.Context(), grant(7), nil); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, path := range []string{"report", "./report", filepath.Join(alias, "report")} {
		if err := open(t, path).Write(t.Context(), grant(6), nil); !errors.Is(err, fence.ErrStale) {
			t.Errorf("%s: %v, want ErrStale", path, err)
		}
	}
}

func TestADamagedMarkAdmitsNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	for _, text := range []string{
		"", "{", "null", "null and void", `{"format":1}`,
		`{"format":2,"mark":{"backend":"memory:test","lock":"reports","token":"8","written":"7"},"version":1}`,
		`{"format":1,"mark":{"backend":"memory:test","lock":"reports","token":"8","written":"9"},"version":1}`,
		`{"format":1,"mark":{"backend":"memory:test","lock":"reports","token":"8","written":"7"},"version":1,"resource":"other"}`,
	} {
		if err := os.WriteFile(path+".fence", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := open(t, path).Write(t.Context(), grant(9), nil)
		if err == nil || fence.Refused(err) {
			t.Errorf("%s: %v, want a failure that is no verdict", text, err)
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s: something was written", text)
		}
	}
}

func TestAStepWaitsForItsTurnAndNotForEver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	f := open(t, path)
	leave, err := f.slot.turn.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hasty, err := Open(path, Config{Wait: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := hasty.Write(t.Context(), grant(1), nil); !errors.Is(err, fence.ErrBusy) {
		t.Errorf("another opening: %v, want ErrBusy", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := f.Write(ctx, grant(1), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the same opening: %v, want the end of the context", err)
	}
	if err := open(t, path).Write(ctx, grant(1), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a context that is done: %v", err)
	}
	time.AfterFunc(30*time.Millisecond, leave)
	if err := f.Write(t.Context(), grant(1), nil); err != nil {
		t.Errorf("after its turn has come: %v", err)
	}
}

// TestALockFileThatWasRemovedKeepsNobodyOut locks a file that has been removed by the time it is
// locked: another process would lock a new one.
func TestALockFileThatWasRemovedKeepsNobodyOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	a := newTurn(path, time.Second)
	file, err := a.tryLock()
	if err != nil || file == nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if a.stillNamed(file) {
		t.Error("the removed lock file passes for the one that others see")
	}
}

func TestPermissionsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	f, err := Open(path, Config{Perm: 0o600})
	if err != nil {
		t.Fatal(err)
	}
	bits := func() os.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	for i, want := range []os.FileMode{0o600, 0o666, 0o444} {
		if i > 0 {
			if err := os.Chmod(path, want); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Write(t.Context(), grant(1), []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if got := bits(); got != want {
			t.Errorf("permissions %v, want %v", got, want)
		}
	}
}

func TestTheObserverIsToldOfVerdictsAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	var counts fence.Counts
	f, err := Open(path, Config{Observer: &counts})
	if err != nil {
		t.Fatal(err)
	}
	f.Enter(t.Context(), grant(7))
	f.WriteOnce(t.Context(), grant(7), nil)
	f.WriteOnce(t.Context(), grant(7), nil)
	f.Delete(t.Context(), grant(6))
	f.Read(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.Write(ctx, grant(7), nil) // a failure
	if got, want := counts.Tally(), (fence.Tally{Accepted: 2, Already: 1, Stale: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestReset(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	f := open(t, path)
	if err := f.Write(t.Context(), grant(900), []byte("kept")); err != nil {
		t.Fatal(err)
	}
	present, err := f.Mark(t.Context())
	if err != nil || present.Token != 900 {
		t.Fatalf("mark %+v, %v", present, err)
	}
	moved := fence.Mark{Backend: "etcd:prod", Lock: "reports"}
	if err := f.Reset(t.Context(), fence.Mark{}, moved); !errors.Is(err, fence.ErrMoved) {
		t.Errorf("a reset that has not looked: %v, want ErrMoved", err)
	}
	if err := f.Reset(t.Context(), present, moved); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(t.Context(), grant(901), nil); !errors.Is(err, fence.ErrForeign) {
		t.Errorf("the old backend: %v, want ErrForeign", err)
	}
	if data, err := f.Read(t.Context()); string(data) != "kept" || err != nil {
		t.Errorf("the data are %q, %v", data, err)
	}
	if err := f.Write(t.Context(), fence.Grant{Backend: "etcd:prod", Lock: "reports", Token: 3}, nil); err != nil {
		t.Errorf("the new backend: %v", err)
	}
}

func TestLookingAtWhatNoGrantHasReachedLeavesNothingBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	f := open(t, path)
	d, err := OpenDir(filepath.Dir(path), Config{})
	if err != nil {
		t.Fatal(err)
	}
	ofFile, errFile := f.Mark(t.Context())
	ofDir, errDir := d.Mark(t.Context(), "report")
	if ofFile.Bound() || ofDir.Bound() || errFile != nil || errDir != nil {
		t.Errorf("marks %+v, %v and %+v, %v", ofFile, errFile, ofDir, errDir)
	}
	if got := names(t, path); len(got) != 0 {
		t.Errorf("files %q", got)
	}
}

func TestAFileThatWasMovedWithItsMarkKeepsIt(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "report"), filepath.Join(t.TempDir(), "report")
	if err := open(t, from).Write(t.Context(), grant(7), []byte("data")); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", ".fence"} {
		if err := os.Rename(from+suffix, to+suffix); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := open(t, to).Mark(t.Context()); m.Token != 7 || err != nil {
		t.Errorf("mark %+v, %v, want token 7", m, err)
	}
}

func TestDirKeepsMarksOfManyResources(t *testing.T) {
	var counts fence.Counts
	path := t.TempDir()
	d, err := OpenDir(path, Config{Observer: &counts})
	if err != nil {
		t.Fatal(err)
	}
	resources := []string{"/orders/42", "../escape", "a\nb", strings.Repeat("x", fence.MaxResourceBytes)}
	for i, name := range resources {
		if err := d.Admit(t.Context(), name, grant(lockstep.Token(i+5)), fence.Write); err != nil {
			t.Errorf("%q: %v", lockstep.Excerpt(name), err)
		}
	}
	d, err = OpenDir(path, Config{Observer: &counts}) // as after a restart
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range resources {
		if m, err := d.Mark(t.Context(), name); err != nil || m.Token != lockstep.Token(i+5) {
			t.Errorf("%q has mark %+v, %v", lockstep.Excerpt(name), m, err)
		}
		if err := d.Admit(t.Context(), name, grant(4), fence.Enter); !errors.Is(err, fence.ErrStale) {
			t.Errorf("%q: %v, want ErrStale", lockstep.Excerpt(name), err)
		}
	}
	if err := d.Admit(t.Context(), "", grant(4), fence.Enter); !errors.Is(err, lockstep.ErrInvalid) {
		t.Errorf("no resource: %v, want ErrInvalid", err)
	}
	present, _ := d.Mark(t.Context(), resources[0])
	if err := d.Reset(t.Context(), resources[0], present, fence.Mark{Backend: "etcd:prod", Lock: "reports"}); err != nil {
		t.Error(err)
	}
	if got := counts.Tally(); got.Accepted != 4 || got.Stale != 4 {
		t.Errorf("counts %+v", got)
	}
}

func BenchmarkFile(b *testing.B) {
	data := make([]byte, 4096)
	for _, bench := range []struct {
		name string
		step func(f *File, token lockstep.Token) error
	}{
		{"write", func(f *File, token lockstep.Token) error { return f.Write(context.Background(), grant(token), data) }},
		{"enter", func(f *File, token lockstep.Token) error { return f.Enter(context.Background(), grant(token)) }},
		{"enter again", func(f *File, token lockstep.Token) error { return f.Enter(context.Background(), grant(1)) }},
		{"read", func(f *File, token lockstep.Token) error {
			_, err := f.Mark(context.Background())
			return err
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			f, err := Open(filepath.Join(b.TempDir(), "report"), Config{})
			if err != nil {
				b.Fatal(err)
			}
			for i := range b.N {
				if err := bench.step(f, lockstep.Token(i+1)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("plain write and rename", func(b *testing.B) {
		path := filepath.Join(b.TempDir(), "report")
		for i := range b.N {
			if err := errors.Join(os.WriteFile(path+fmt.Sprint(i%2), data, 0o600), os.Rename(path+fmt.Sprint(i%2), path)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
