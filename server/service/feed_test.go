package service

import (
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
)

func numbered(from, to uint64) []command.Event {
	var all []command.Event
	for n := from; n <= to; n++ {
		all = append(all, command.Event{Number: n, Name: "job"})
	}
	return all
}

// wantPage checks the numbers of a page; a first of 0 means none, and to wait.
func wantPage(t *testing.T, p page, first, last uint64) {
	t.Helper()
	switch n := len(p.events); {
	case p.gone:
		t.Errorf("the events are gone, want %d to %d", first, last)
	case first == 0 && (n != 0 || p.more == nil):
		t.Errorf("%d events, want none and to wait", n)
	case first != 0 && (n == 0 || p.events[0].Number != first || p.events[n-1].Number != last):
		t.Errorf("%d events, want %d to %d", n, first, last)
	}
}

func TestAFeedGivesTheEventsBehindANumberInPages(t *testing.T) {
	f := NewFeed()
	wantPage(t, f.after(7, 7, 10), 0, 0) // 7 is the last that was applied
	if p := f.after(6, 7, 10); !p.gone || p.oldest != 7 {
		t.Errorf("behind 6, with none but 7 known: %+v", p)
	}
	waiting := f.after(7, 7, 10)
	f.Add(numbered(8, 20))
	select {
	case <-waiting.more:
	default:
		t.Error("who waits is not told")
	}
	wantPage(t, f.after(7, 7, 10), 8, 17)
	wantPage(t, f.after(17, 7, 10), 18, 20)
	wantPage(t, f.after(20, 7, 10), 0, 0)
	wantPage(t, f.after(1<<63, 7, 10), 0, 0) // of the future
	if _, last := f.bounds(7); last != 20 {
		t.Errorf("the last is %d, want 20", last)
	}
}

func TestAFeedBeginsAnewBehindAGap(t *testing.T) {
	f := NewFeed()
	f.Add(numbered(1, 5))
	f.Add(numbered(9, 10)) // a snapshot took the place of 6 to 8
	if p := f.after(5, 0, 10); !p.gone || p.oldest != 8 {
		t.Errorf("behind 5: %+v, want gone, and 8 the oldest", p)
	}
	wantPage(t, f.after(8, 0, 10), 9, 10)
}

func TestAFeedIsBoundedInNumberAndBytes(t *testing.T) {
	f := NewFeed()
	f.Add(numbered(1, feedEvents+1000))
	if p := f.after(999, 0, 10); !p.gone || p.oldest < 1000 || p.oldest > 1000+partEvents {
		t.Errorf("behind 999: gone %v, oldest %d; want 1000 or a part more", p.gone, p.oldest)
	}
	for at := uint64(3000); at < feedEvents+1000; { // across part boundaries
		p := f.after(at, 0, 100)
		if len(p.events) == 0 || p.events[0].Number != at+1 {
			t.Fatalf("behind %d: %+v", at, p)
		}
		at += uint64(len(p.events))
	}

	big := numbered(1, 200)
	for i := range big {
		big[i].Reason = string(make([]byte, 1<<20))
	}
	f = NewFeed()
	for i := range big {
		f.Add(big[i : i+1])
	}
	if n := f.mu.count; n > 2*feedBytes>>20 || f.mu.bytes > feedBytes {
		t.Errorf("%d events of %d bytes are kept", n, f.mu.bytes)
	}
}
