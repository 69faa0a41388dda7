package audit

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// written writes events like a running log.
func written(l *Log, from, to uint64) {
	l.Events(events(from, to))
	l.flush()
}

// copyOf returns what a log tool copies before it truncates the file.
func copyOf(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAFileThatWasMovedAwayIsFollowedByANewOne(t *testing.T) {
	for name, after := range map[string]func(t *testing.T, path string){
		"and none was made": func(*testing.T, string) {},
		"and an empty one was made": func(t *testing.T, path string) {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"and the node is told": func(*testing.T, string) {},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			l := opened(t, Config{Path: path}, "i")
			written(l, 1, 5)
			if err := os.Rename(path, path+".1"); err != nil {
				t.Fatal(err)
			}
			after(t, path)
			if strings.Contains(name, "told") {
				l.Reopen()
				if h, err := firstLine(path); err != nil || h.Next != 6 {
					t.Errorf("the new file begins with %+v, %v", h, err)
				}
			}
			written(l, 6, 9)
			if err := l.Status(); err.Errors != 0 {
				t.Errorf("%d errors", err.Errors)
			}
			stop(t, l)
			if old := copyOf(t, path+".1"); bytes.Count(old, []byte("\n")) != 6 {
				t.Errorf("the file that was moved away is written on:\n%s", old)
			}
			numbers(t, read(t, path), 9)
			l = opened(t, Config{Path: path}, "i")
			written(l, 1, 12)
			stop(t, l)
			numbers(t, read(t, path), 12)
		})
	}
}

func TestAForeignFileInThePlaceOfTheMovedOneIsNotTouched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := opened(t, Config{Path: path}, "i")
	written(l, 1, 5)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("my notes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	written(l, 6, 9)
	if s := l.Status(); s.Errors == 0 || s.Last != 9 {
		t.Errorf("%+v: want an error, and the events in the old file", s)
	}
	if got := string(copyOf(t, path)); got != "my notes\n" {
		t.Errorf("the foreign file is now %q", got)
	}
	stop(t, l)
	if old := copyOf(t, path+".1"); bytes.Count(old, []byte("\n")) != 10 {
		t.Errorf("the events are not in the old file:\n%s", old)
	}
}

func TestAFileThatWasCopiedAndCutOffLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.log")
		var told bytes.Buffer
		l := opened(t, Config{Path: path, Logger: slog.New(slog.NewTextHandler(&told, nil))}, "i")
		written(l, 1, 5)
		time.Sleep(repeatFor + time.Second)
		written(l, 6, 8)
		copied := copyOf(t, path)
		written(l, 9, 10) // after the copy, before the truncation
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		written(l, 11, 12)
		stop(t, l)
		now := string(copyOf(t, path))
		lines := strings.Split(strings.TrimSpace(now), "\n")
		if len(lines) != 1+7 || !strings.Contains(lines[0], `"next":6`) {
			t.Errorf("want a header and the events from 6 on:\n%s", now)
		}
		for i, line := range lines[1:] {
			if number, ok := eventNumber([]byte(line + "\n")); !ok || number != uint64(6+i) {
				t.Errorf("line %d: %s", i, line)
			}
		}
		if bytes.Count(copied, []byte("\n")) != 9 || !strings.Contains(told.String(), "truncated by another program") || !strings.Contains(told.String(), "from=6") {
			t.Errorf("copied %d lines; the log says %s", bytes.Count(copied, []byte("\n")), told.String())
		}
		l = opened(t, Config{Path: path}, "i")
		written(l, 1, 14)
		stop(t, l)
		if got := copyOf(t, path); bytes.Count(got, []byte("\n")) != 1+9 || bytes.IndexByte(got, 0) >= 0 {
			t.Errorf("after a restart:\n%s", got)
		}
		if answer, err := l.Answer(7, 15); err != nil {
			t.Errorf("peers are not answered: %v", err)
		} else {
			_, _ = io.Copy(io.Discard, answer)
			_ = answer.Close()
		}
	})
}

func TestOnlyAnEndThatWasCutOffIsWrittenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := opened(t, Config{Path: path}, "i")
	written(l, 1, 20)
	if err := os.Truncate(path, int64(len(copyOf(t, path))/2)); err != nil {
		t.Fatal(err)
	}
	written(l, 21, 22)
	stop(t, l)
	if h, err := firstLine(path); err != nil || h.Next != 1 {
		t.Errorf("the new file begins with %+v, %v", h, err)
	}
	if got := copyOf(t, path); bytes.Count(got, []byte("\n")) != 23 {
		t.Errorf("the new file has not all events:\n%s", got)
	}
}

// Older builds continued writing after the offset at which their file had been truncated.
func TestZerosBeforeTheLinesKeepNoNodeFromStarting(t *testing.T) {
	for name, copied := range map[string]bool{"the copy is there": true, "the copy is elsewhere": false} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			l := opened(t, Config{Path: path}, "i")
			written(l, 1, 9)
			stop(t, l)
			whole := copyOf(t, path)
			half := bytes.Index(whole, []byte(`{"number":5,`))
			if copied {
				if err := os.WriteFile(path+".1", whole[:half], 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(path, append(make([]byte, 10_000), whole[half:]...), 0o600); err != nil {
				t.Fatal(err)
			}
			l = opened(t, Config{Path: path}, "i")
			written(l, 1, 12)
			stop(t, l)
			want := 1 + 12
			if copied {
				want = 1 + 3
			}
			if got := copyOf(t, path); bytes.Count(got, []byte("\n")) != want {
				t.Errorf("want %d lines:\n%s", want, got)
			}
			if old := copyOf(t, path+".1"); !bytes.HasSuffix(old, whole[half:]) {
				t.Errorf("the lines behind the zeros are gone")
			}
		})
	}
}

func TestWhatIsKeptForRepetitionIsBounded(t *testing.T) {
	var m memory
	begin := time.Now()
	for i := range 100 {
		m.add(chunk{next: uint64(i + 1), lines: make([]byte, 1<<20), at: begin})
	}
	if m.bytes > repeatBytes || len(m.chunks) != repeatBytes>>20 {
		t.Errorf("%d bytes in %d chunks", m.bytes, len(m.chunks))
	}
	m.add(chunk{next: 101, lines: make([]byte, repeatBytes+1), at: begin})
	if len(m.chunks) != 1 {
		t.Errorf("%d chunks", len(m.chunks))
	}
	if first, lines := m.since(begin.Add(repeatFor+1), 102); first != 102 || len(lines) > 0 {
		t.Errorf("%d bytes from event %d", len(lines), first)
	}
}

// withoutDescriptors runs do while this process cannot open any file. No test of the package runs
// in parallel.
func withoutDescriptors(t *testing.T, do func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := before
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
	}()
	do()
}

func TestWithoutADescriptorForTheNextFileNothingMovesAndNothingIsLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := opened(t, Config{Path: path, FileBytes: 64 << 10, Files: 3}, "i")
	written(l, 1, 5)
	withoutDescriptors(t, func() {
		for n := uint64(6); n <= 996; n += 10 { // much more than a file
			written(l, n, n+9)
		}
	})
	if l.Status().Errors == 0 {
		t.Fatal("no file was due")
	}
	for _, older := range []string{".1", ".2"} {
		if _, err := os.Stat(path + older); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the file was moved to %s although there was no other: %v", older, err)
		}
	}
	numbers(t, read(t, path), 1005)
	written(l, 1006, 1007)
	stop(t, l)
	if h, err := firstLine(path); err != nil || h.Next <= 1005 {
		t.Errorf("the new file begins with %+v, %v", h, err)
	}
	numbers(t, read(t, path), 1007)
}
