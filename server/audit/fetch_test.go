package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// A peer answers as another node's Log does, or should.
type peer func(ctx context.Context, from, to uint64) (io.ReadCloser, error)

// peerWith returns a peer whose log has these events.
func peerWith(t *testing.T, events ...[]command.Event) peer {
	t.Helper()
	l := opened(t, Config{Path: filepath.Join(t.TempDir(), "audit.log"), FileBytes: MinFileBytes, Files: 100}, "i")
	for _, list := range events {
		l.Events(list)
		l.flush()
	}
	stop(t, l)
	return func(_ context.Context, from, to uint64) (io.ReadCloser, error) { return l.Answer(from, to) }
}

func away(context.Context, uint64, uint64) (io.ReadCloser, error) {
	return nil, errors.New("connection refused")
}

func without(context.Context, uint64, uint64) (io.ReadCloser, error) { return nil, ErrNoLog }

// asking returns a log that ends with event 10 and has these peers.
func asking(t *testing.T, path string, peers ...peer) *Log {
	t.Helper()
	cfg := Config{
		Path: path, FileBytes: MinFileBytes, Files: 100,
		Ask: func(ctx context.Context, id, from, to uint64) (io.ReadCloser, error) {
			return peers[id-1](ctx, from, to)
		},
		Peers: func() (ids []uint64) {
			for i := range peers {
				ids = append(ids, uint64(i+1))
			}
			return ids
		},
	}
	l := opened(t, cfg, "i")
	l.Events(events(1, 10))
	l.flush()
	return l
}

// during runs the log while do is called, in a synctest bubble.
func during(t *testing.T, l *Log, do func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	do()
	synctest.Wait()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// complete checks that a log has the events from 1 to last, each exactly once and as on every node.
func complete(t *testing.T, l *Log, last uint64) {
	t.Helper()
	var w Writer
	for n := uint64(1); n <= last; n += 1000 {
		for _, e := range events(n, min(last, n+999)) {
			w.Add(&e)
		}
	}
	if got := strings.Join(read(t, l.cfg.Path), "\n") + "\n"; got != w.pending.String() {
		t.Errorf("the lines are not those of the events 1 to %d; status %+v", last, l.Status())
	}
	if st := l.Status(); st.Last != last || st.Lost != 0 || st.Wanted != 0 || st.Errors != 0 {
		t.Errorf("%+v", st)
	}
}

func inBubble(t *testing.T, test func(t *testing.T, path string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.log")
	synctest.Test(t, func(t *testing.T) { test(t, path) })
}

func TestWhatIsMissingComesFromAPeersRotatedFiles(t *testing.T) {
	source := peerWith(t, events(1, 5000))
	inBubble(t, func(t *testing.T, path string) {
		l := asking(t, path, source)
		during(t, l, func() {
			for n := uint64(4001); n < 5001; n += 100 {
				l.Events(events(n, n+99))
			}
		})
		complete(t, l, 5000)
		if got := l.Status().Fetched; got != 3990 {
			t.Errorf("%d events fetched", got)
		}
	})
}

func TestSeveralPeersHaveAPartEach(t *testing.T) {
	peers := []peer{
		without, away,
		peerWith(t, events(700, 1500)),
		peerWith(t, events(1, 400), events(1000, 1100)),
		peerWith(t, events(380, 750), events(1090, 1200)),
	}
	inBubble(t, func(t *testing.T, path string) {
		l := asking(t, path, peers...)
		during(t, l, func() { l.Events(events(1500, 1600)) })
		complete(t, l, 1600)
	})
}

func TestOnlyWhatNoPeerHasIsSaidToBeMissing(t *testing.T) {
	peers := []peer{
		peerWith(t, events(1, 49), events(70, 300)),
		peerWith(t, events(1, 20), events(60, 80), events(200, 300)),
	}
	inBubble(t, func(t *testing.T, path string) {
		l := asking(t, path, peers...)
		during(t, l, func() { l.Events(events(101, 300)) })
		lines := read(t, path)
		if len(lines) != 49+1+241 || lines[49] != `{"missing_from":50,"missing_to":59}` {
			t.Fatalf("%d lines, %s", len(lines), lines[min(49, len(lines)-1)])
		}
		if st := l.Status(); st.Last != 300 || st.Lost != 10 || st.Fetched != 80 || st.Wanted != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestAPeerWhoseLinesAreWrongIsPassedOver(t *testing.T) {
	good := peerWith(t, events(1, 600))
	changed := func(change func([]byte) []byte) peer {
		return func(ctx context.Context, from, to uint64) (io.ReadCloser, error) {
			whole, err := good(ctx, from, to)
			if err != nil {
				return nil, err
			}
			defer whole.Close()
			b, err := io.ReadAll(whole)
			return io.NopCloser(bytes.NewReader(change(b))), err
		}
	}
	line := func(b []byte, i int) []byte {
		lines := bytes.SplitAfter(b, []byte("\n"))
		return lines[min(i, len(lines)-2)]
	}
	for name, change := range map[string]func([]byte) []byte{
		"it leaves one out":         func(b []byte) []byte { return bytes.Replace(b, line(b, 40), nil, 1) },
		"it repeats one":            func(b []byte) []byte { return bytes.Replace(b, line(b, 40), line(b, 39), 1) },
		"it begins with an old one": func(b []byte) []byte { return bytes.Replace(b, []byte(`"number":11,`), []byte(`"number":1,`), 1) },
		"it breaks off":             func(b []byte) []byte { return b[:len(b)/2] },
		"it is no JSON":             func(b []byte) []byte { return bytes.Replace(b, []byte(`,"time"`), []byte(`;"time"`), 30) },
		"it has a gap line":         func(b []byte) []byte { return append(line(b, 0), "{\"missing_from\":11,\"missing_to\":600}\n"...) },
		"it is something else":      func([]byte) []byte { return []byte("<html>\n") },
		"it has no end of a line":   func([]byte) []byte { return bytes.Repeat([]byte("x"), 10*maxLine) },
		"it is empty":               func([]byte) []byte { return nil },
		"its head lies":             func(b []byte) []byte { return line(b, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				l := asking(t, path, changed(change), good)
				during(t, l, func() { l.Events(events(590, 600)) })
				complete(t, l, 600)
			})
			// And it alone does not delay the log forever.
			inBubble(t, func(t *testing.T, path string) {
				l := asking(t, path, changed(change))
				during(t, l, func() { l.Events(events(590, 600)); time.Sleep(time.Hour) })
				if st := l.Status(); st.Last != 600 || st.Fetched+st.Lost != 579 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

func TestWithoutAnybodyToAskTheGapIsSaidAtOnce(t *testing.T) {
	for name, peers := range map[string][]peer{
		"no peers":                  {},
		"peers without a log":       {without, without},
		"peers that have let it go": {peerWith(t, events(90, 200)), peerWith(t, events(1, 5), events(95, 200))},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				l := asking(t, path, peers...)
				during(t, l, func() { l.Events(events(80, 100)) })
				if st := l.Status(); st.Last != 100 || st.Lost != 69 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

func TestAPeerThatIsAwayIsWaitedFor(t *testing.T) {
	good := peerWith(t, events(1, 200))
	inBubble(t, func(t *testing.T, path string) {
		began := time.Now()
		l := asking(t, path, func(ctx context.Context, from, to uint64) (io.ReadCloser, error) {
			if time.Since(began) < patience/2 {
				return away(ctx, from, to)
			}
			return good(ctx, from, to)
		})
		during(t, l, func() {
			l.Events(events(100, 200))
			time.Sleep(patience / 4)
			if st := l.Status(); st.Last != 10 || st.Wanted != 89 {
				t.Errorf("%+v", st)
			}
			time.Sleep(patience / 2)
		})
		complete(t, l, 200)
	})
}

func TestAPeerThatStaysAwayIsWaitedForOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		l := asking(t, path, without, away)
		during(t, l, func() {
			l.Events(events(100, 200))
			// The events in between were dropped, as when the queue overflows.
			l.Events(events(300, 400))
			time.Sleep(patience + 2*retryEvery)
			if st := l.Status(); st.Last != 400 || st.Lost != 89+99 {
				t.Errorf("%+v", st)
			}
			l.Events(events(500, 500)) // much later: a separate gap
			time.Sleep(patience / 2)
			if st := l.Status(); st.Last != 400 || st.Wanted != 99 {
				t.Errorf("%+v", st)
			}
		})
	})
}

func TestLogsThatLackTheSameDoNotWaitForEachOther(t *testing.T) {
	other := filepath.Join(t.TempDir(), "audit.log")
	inBubble(t, func(t *testing.T, path string) {
		var a, b *Log
		a = asking(t, path, func(_ context.Context, from, to uint64) (io.ReadCloser, error) { return b.Answer(from, to) })
		b = asking(t, other, func(_ context.Context, from, to uint64) (io.ReadCloser, error) { return a.Answer(from, to) })
		during(t, a, func() {
			during(t, b, func() {
				a.Events(events(100, 200))
				b.Events(events(100, 200))
				time.Sleep(patience / 2)
			})
		})
		for _, l := range []*Log{a, b} {
			if st := l.Status(); st.Last != 200 || st.Lost != 89 {
				t.Errorf("%+v", st)
			}
		}
	})
}

func TestWhatOverflowsTheQueueIsFetchedToo(t *testing.T) {
	const last, limit = 5000, 1000
	good := peerWith(t, events(1, last))
	inBubble(t, func(t *testing.T, path string) {
		fed := make(chan struct{})
		l := asking(t, path, func(ctx context.Context, from, to uint64) (io.ReadCloser, error) {
			<-fed
			return good(ctx, from, to)
		})
		l.queue.limit = limit
		during(t, l, func() {
			for n := uint64(500); n < last; n += 100 {
				l.Events(events(n+1, n+100))
				l.queue.mu.Lock()
				if got := len(l.queue.mu.events); got > limit {
					t.Errorf("%d events wait", got)
				}
				l.queue.mu.Unlock()
			}
			close(fed)
		})
		complete(t, l, last)
		if st := l.Status(); st.Fetched < last-limit-100 {
			t.Errorf("nothing was let go: %+v", st)
		}
	})
}

func TestARestartWithinAFetchGoesOnFromThere(t *testing.T) {
	good := peerWith(t, events(1, 2000))
	inBubble(t, func(t *testing.T, path string) {
		for round := range uint64(5) {
			given := 0
			l := asking(t, path, func(ctx context.Context, from, to uint64) (io.ReadCloser, error) {
				if given++; given > 1 && round < 4 {
					<-ctx.Done() // the peer hangs, and the process stops
					return nil, ctx.Err()
				}
				return good(ctx, from, min(to, from+300))
			})
			during(t, l, func() { l.Events(events(1900, 2000)) })
			want := 10 + 300*(round+1)
			if st := l.Status(); round < 4 && (st.Last != want || st.Wanted != 1899-want) {
				t.Errorf("%+v, want last %d, wanted %d", st, want, 1899-want)
			}
			if round == 4 {
				complete(t, l, 2000)
			}
		}
	})
}

func TestTheHistoryOfASnapshotIsBehindTheGap(t *testing.T) {
	m := machine.New()
	index := uint64(0)
	var all []command.Event
	apply := func(c command.Command) command.Output {
		index++
		out := m.Apply(index, 1, &command.Entry{Header: command.Header{Proposer: 1, Batch: index, Wall: 1}, Commands: []command.Command{c}})
		all = append(all, out.Events...)
		return out
	}
	limits := command.DefaultLimits()
	limits.HistoryBytes = 64 << 10
	apply(command.SetLimits{Limits: limits})
	apply(command.SetTokenFloor{Floor: 1})
	id := apply(command.OpenSession{TTL: 10_000, ClientNumbered: true}).Results[0].Session
	for seq := uint64(1); seq <= 4000; seq++ {
		apply(command.Acquire{Session: id, Seq: seq, Floor: seq, Spec: command.Spec{Names: []string{fmt.Sprint("a/", seq)}}})
	}
	kept := m.Past().After(0, 1)[0].Number
	if kept < 1000 {
		t.Fatalf("the history begins with %d", kept)
	}
	source := peerWith(t, all)
	inBubble(t, func(t *testing.T, path string) {
		l := asking(t, path, source)
		l.writing.Lock()
		l.writing.writer.Resume(0)
		if err := l.writing.file.rotate(); err != nil {
			t.Fatal(err)
		}
		l.writing.Unlock()
		during(t, l, func() {
			l.Loaded(m.Past())
			apply(command.CloseSession{Session: id}) // the machine continues
			l.Events(all[4000:])
		})
		if st := l.Status(); st.Last != 8000 || st.Lost != 0 || st.Fetched < kept-11 || st.Fetched > kept {
			t.Errorf("%+v, kept from %d", st, kept)
		}
	})
}

func TestTheSearchEnds(t *testing.T) {
	const now, later = false, true
	at := time.Unix(1000, 0)
	for _, c := range []struct {
		what  string
		s     search
		later bool
		over  bool
		vain  bool
	}{
		{"no peer may have it later", search{}, now, true, false},
		{"a peer may", search{}, later, false, false},
		{"for a while", search{began: at.Add(-patience + time.Second)}, later, false, false},
		{"but not for ever", search{began: at.Add(-patience)}, later, true, true},
		{"and once only", search{vain: true}, later, true, true},
	} {
		if over := c.s.nothing(at, c.later); over != c.over || c.s.vain != c.vain || !over && c.s.due(at.Add(retryEvery-1)) {
			t.Errorf("%s: over %v, %+v", c.what, over, c.s)
		}
		if c.s.found(); !c.s.due(at) || c.s.vain {
			t.Errorf("%s: a line was found: %+v", c.what, c.s)
		}
	}
}

// BenchmarkFetch copies a line from one node's file to another's, without the network in between.
func BenchmarkFetch(b *testing.B) {
	const each = 20_000
	source, err := New(Config{Path: filepath.Join(b.TempDir(), "audit.log"), Node: "n2"})
	if err != nil {
		b.Fatal(err)
	}
	if err := source.Open("c", "i"); err != nil {
		b.Fatal(err)
	}
	source.Events(events(1, each))
	source.flush()
	for b.Loop() {
		l, err := New(Config{
			Path: filepath.Join(b.TempDir(), "audit.log"), Node: "n1",
			Peers: func() []uint64 { return []uint64{2} },
			Ask:   func(_ context.Context, _, from, to uint64) (io.ReadCloser, error) { return source.Answer(from, to) },
		})
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Open("c", "i"); err != nil {
			b.Fatal(err)
		}
		l.Events(events(each+1, each+1))
		l.catchUp(b.Context())
		if st := l.Status(); st.Last != each+1 || st.Lost != 0 {
			b.Fatalf("%+v", st)
		}
		if err := l.close(); err != nil {
			b.Fatal(err)
		}
	}
	if err := source.close(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(each)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
