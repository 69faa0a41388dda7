package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"testing"
)

// asked returns the head and the lines of an answer.
func asked(t *testing.T, l *Log, from, to uint64) (h head, lines [][]byte) {
	t.Helper()
	a, err := l.Answer(from, to)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	return told(t, a)
}

func told(t *testing.T, a io.Reader) (h head, lines [][]byte) {
	t.Helper()
	b, err := io.ReadAll(a)
	if err != nil {
		t.Fatal(err)
	}
	lines = bytes.SplitAfter(b, []byte("\n"))
	if err := json.Unmarshal(lines[0], &h); err != nil {
		t.Fatalf("%v: %s", err, lines[0])
	}
	return h, lines[1 : len(lines)-1]
}

func TestAnAnswerBeginsWhereItIsAsked(t *testing.T) {
	l := opened(t, Config{Path: filepath.Join(t.TempDir(), "audit.log"), FileBytes: 1 << 20, Files: 100}, "i")
	for _, part := range [][2]uint64{{1, 4000}, {5001, 9000}, {9100, 9100}, {9150, 20_000}} {
		l.Events(events(part[0], part[1]))
		l.flush()
	}
	stop(t, l)
	var w Writer
	for from := uint64(1); from <= 20_010; from += 37 {
		first := from
		switch {
		case from > 4000 && from <= 5000:
			first = 5001
		case from > 9000 && from < 9100:
			first = 9100
		case from > 9100 && from < 9150:
			first = 9150
		case from > 20_000:
			first = 0
		}
		h, lines := asked(t, l, from, from+3)
		if h.Last != 20_000 || h.First != first || h.Waiting || (len(lines) > 0) != (first == from) || len(lines) > 3 {
			t.Fatalf("from %d: %+v, %d lines, want first %d", from, h, len(lines), first)
		}
		for i, line := range lines {
			number := from + uint64(i)
			w.Resume(number - 1)
			w.pending.Reset()
			w.Add(&events(number, number)[0])
			if !bytes.Equal(line, w.pending.Bytes()) {
				t.Fatalf("line %d from %d: %s", i, from, line)
			}
		}
	}
}

func TestAnAnswerOutlivesTheFileThatItComesFrom(t *testing.T) {
	l := opened(t, Config{Path: filepath.Join(t.TempDir(), "audit.log"), FileBytes: MinFileBytes, Files: 2}, "i")
	l.Events(events(1, 100))
	l.flush()
	a, err := l.Answer(51, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for n := uint64(101); n < 2000; n += 100 {
		l.Events(events(n, n+99))
		l.flush()
	}
	h, lines := told(t, a)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if h.First != 51 || h.Last != 100 || len(lines) != 50 {
		t.Errorf("%+v, %d lines", h, len(lines))
	}
	if h, _ := asked(t, l, 51, 1000); h.First <= 100 {
		t.Errorf("the old files are still there: %+v", h)
	}
	stop(t, l)
}

func TestAnAnswerHasNothingOfAnotherLifeOfTheDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	for i, last := range []uint64{50, 20} {
		l := opened(t, Config{Path: path}, fmt.Sprint("life ", i))
		l.Events(events(1, last))
		stop(t, l)
		if h, lines := asked(t, l, 10, 100); h.Last != last || uint64(len(lines)) != last-9 {
			t.Errorf("%+v, %d lines, want up to %d", h, len(lines), last)
		}
		if h, _ := asked(t, l, 30, 100); (h.First == 0) != (last == 20) {
			t.Errorf("%+v with %d events", h, last)
		}
	}
}
