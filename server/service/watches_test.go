package service

import (
	"testing"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// take adds as many watches as it can, at most n.
func take(w *watches, c watcher, n int) (taken int, refused *pb.Error) {
	for taken < n {
		if refused = w.add(c); refused != nil {
			return taken, refused
		}
		taken++
	}
	return taken, nil
}

func wire() *account { return newAccount(&ledger{}, 1, func() {}) }

func TestAnAddressHasHalfOfTheWatches(t *testing.T) {
	t.Parallel()
	w := newWatches(16)
	total := 0
	for range 100 {
		n, _ := take(w, watcher{wire(), "10.0.0.1"}, 16)
		total += n
	}
	if total != maxWatches/2 {
		t.Errorf("one address has %d watches, want %d", total, maxWatches/2)
	}
	if _, e := take(w, watcher{wire(), "10.0.0.1"}, 1); e.GetMessage() != "watches of clients at 10.0.0.1: at most 512" {
		t.Errorf("the error is %v", e)
	}
	if n, e := take(w, watcher{wire(), "10.0.0.2"}, 16); n != 16 {
		t.Errorf("another address has %d: %v", n, e)
	}
	http := newAccount(&ledger{}, 1, nil)
	if n, e := take(w, watcher{http, "10.0.0.1"}, maxWatches); n != httpWatches/2 {
		t.Errorf("one address has %d over HTTP: %v", n, e)
	}
	if n, e := take(w, watcher{http, "10.0.0.2"}, 1); n != 1 {
		t.Errorf("another address has none over HTTP: %v", e)
	}
}

func TestTheLastWatchesAreForConnectionsThatHaveNone(t *testing.T) {
	t.Parallel()
	w := newWatches(maxWatches)
	greedy := []watcher{{wire(), "10.0.0.1"}, {wire(), "10.0.0.2"}, {wire(), "10.0.0.3"}}
	var taken []watcher
	for _, c := range greedy {
		n, _ := take(w, c, maxWatches)
		for range n {
			taken = append(taken, c)
		}
	}
	if total := len(taken); total != maxWatches-reservedWatches+1 { // the third connection's first one came from the reserve
		t.Errorf("%d watches of three connections", total)
	}
	fresh := watcher{wire(), "10.0.0.4"}
	if n, e := take(w, fresh, 2); n != 1 {
		t.Errorf("a connection without a watch got %d of 2: %v", n, e)
	}
	for _, c := range append(taken, fresh) {
		w.remove(c)
	}
	if w.count() != 0 || len(w.mu.of) != 0 || len(w.mu.at) != 0 {
		t.Errorf("left: %d watches, %v, %v", w.count(), w.mu.of, w.mu.at)
	}
}
