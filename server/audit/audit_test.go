package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
)

func events(from, to uint64) (list []command.Event) {
	for n := from; n <= to; n++ {
		list = append(list, command.Event{
			Number: n, Kind: command.EventRevoked, Name: fmt.Sprintf("team/%d", n), Claim: command.ClaimID{Seq: n}, Token: command.Token(n),
			Wall: 1_700_000_000_000, Metadata: []command.Label{{Key: "a", Value: "<1>"}}, By: "ann", Reason: "a \"reason\"\nof two lines",
		})
	}
	return list
}

func opened(t *testing.T, cfg Config, instance string) *Log {
	t.Helper()
	cfg.Node = "n1"
	l, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Open("c", instance); err != nil {
		t.Fatal(err)
	}
	return l
}

// stop ends a log like a graceful shutdown of the process.
func stop(t *testing.T, l *Log) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := l.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// read returns the lines of all files, oldest first, without headers.
func read(t *testing.T, path string) (lines []string) {
	t.Helper()
	for i := 100; i >= 0; i-- {
		name := fmt.Sprintf("%s.%d", path, i)
		if i == 0 {
			name = path
		}
		b, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
			if header := strings.HasPrefix(line, headerStart); header != (n == 0) {
				t.Fatalf("line %d of %s: %s", n, name, line)
			} else if !header {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// numbers checks that the lines are the events from 1 on, each exactly once.
func numbers(t *testing.T, lines []string, last uint64) {
	t.Helper()
	if uint64(len(lines)) != last {
		t.Fatalf("%d lines, want %d", len(lines), last)
	}
	for i, line := range lines {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Number != uint64(i+1) {
			t.Fatalf("line %d: %s: %v", i+1, line, err)
		}
	}
}

func TestALineTellsTheEvent(t *testing.T) {
	var w Writer
	w.Add(&events(1, 1)[0])
	want := `{"number":1,"time":"2023-11-14T22:13:20.000Z","kind":"revoked","name":"team/1","session":"00000000000000000000000000000000","seq":1,"token":1,"mode":"exclusive","by":"ann","reason":"a \"reason\"\nof two lines","metadata":{"a":"<1>"}}` + "\n"
	if got := w.pending.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestEventsAreWrittenOnceAndGapsAreSaid(t *testing.T) {
	var w Writer
	for _, e := range append(append(events(1, 3), events(2, 4)...), events(8, 8)...) {
		w.Add(&e)
	}
	lines := strings.Split(strings.TrimSpace(w.pending.String()), "\n")
	if len(lines) != 6 || lines[4] != `{"missing_from":5,"missing_to":7}` || w.Lost() != 3 || w.Last() != 8 {
		t.Errorf("lost %d, last %d\n%s", w.Lost(), w.Last(), strings.Join(lines, "\n"))
	}
}

func TestAfterAKillAtAnyByteEachEventIsThereOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := opened(t, Config{Path: path}, "i")
	l.Events(events(1, 5))
	stop(t, l)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := range len(whole) + 1 {
		for _, torn := range [][]byte{whole[:size], append(bytes.Clone(whole[:size]), make([]byte, 100)...)} {
			if size < len(headerStart) && len(torn) > size {
				continue // only zeros: we wrote none of it
			}
			if err := os.WriteFile(path, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			l := opened(t, Config{Path: path}, "i")
			l.Events(events(1, 7)) // a node applies its log again
			stop(t, l)
			numbers(t, read(t, path), 7)
		}
	}
}

func TestFilesAreRotatedAndTheOldestGoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	cfg := Config{Path: path, FileBytes: MinFileBytes, Files: 3}
	for n := uint64(0); n < 3000; n += 100 {
		l := opened(t, cfg, "i")
		l.Events(events(1+n, 100+n))
		stop(t, l)
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != 3 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	last := uint64(3000)
	lines := read(t, path)
	for i := range lines {
		if number, ok := accountsFor([]byte(lines[len(lines)-1-i])); !ok || number != last-uint64(i) {
			t.Fatalf("line %d from the end is %s", i, lines[len(lines)-1-i])
		}
	}
}

func TestACrashWithinARotationLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := opened(t, Config{Path: path}, "i")
	l.Events(events(1, 5))
	stop(t, l)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	l = opened(t, Config{Path: path}, "i")
	l.Events(events(1, 7))
	stop(t, l)
	numbers(t, read(t, path), 7)
}

func TestAnotherLifeOfTheDirectoryHasAFileOfItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	for _, instance := range []string{"one", "two", "three"} {
		l := opened(t, Config{Path: path}, instance)
		l.Events(events(1, 5))
		stop(t, l)
	}
	for _, file := range []string{path, path + ".1", path + ".2"} {
		if b, err := os.ReadFile(file); err != nil || bytes.Count(b, []byte("\n")) != 6 {
			t.Errorf("%s: %v\n%s", file, err, b)
		}
	}
}

func TestAForeignFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	other, err := New(Config{Path: path, Node: "n2"})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Open("c", "i"); err != nil {
		t.Fatal(err)
	}
	stop(t, other)
	text := filepath.Join(dir, "notes")
	if err := os.WriteFile(text, []byte("my notes"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, text, dir, filepath.Join(dir, "missing", "audit.log")} {
		before, _ := os.ReadFile(path)
		l, err := New(Config{Path: path, Node: "n1"})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Open("c", "i"); err == nil {
			t.Errorf("%s was taken", path)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
			t.Errorf("%s was changed", path)
		}
	}
}

func TestWhatTheFileLacksComesFromTheSnapshotsHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	m := machine.New()
	index := uint64(0)
	apply := func(c command.Command) command.Output {
		index++
		return m.Apply(index, 1, &command.Entry{Header: command.Header{Proposer: 1, Batch: index, Wall: 1}, Commands: []command.Command{c}})
	}
	apply(command.SetTokenFloor{Floor: 1})
	id := apply(command.OpenSession{TTL: 10_000, ClientNumbered: true}).Results[0].Session
	var all []command.Event
	for seq := uint64(1); seq <= 20; seq++ {
		out := apply(command.Acquire{Session: id, Seq: seq, Spec: command.Spec{Names: []string{fmt.Sprint("a/", seq)}}})
		all = append(all, out.Events...)
	}
	if len(all) != 20 {
		t.Fatalf("%d events", len(all))
	}
	l := opened(t, Config{Path: path}, "i")
	l.Events(all[:5])
	l.Loaded(m.Past())
	l.Events(all[10:])
	stop(t, l)
	numbers(t, read(t, path), 20)
	if st := l.Status(); st.Last != 20 || st.Lost != 0 || st.Errors != 0 {
		t.Errorf("%+v", st)
	}
}
