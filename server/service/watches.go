package service

import (
	"sync"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

const (
	// maxWatches bounds the watches of one node. Each has at most watchBatch events in hand.
	maxWatches = 1_024
	// httpWatches of them may come over HTTP.
	httpWatches = maxWatches / 2
	// reservedWatches of them are for connections that have no watch yet.
	reservedWatches = 64
)

// A watcher is who watches: a connection, and the address of its client. All connections over HTTP
// have one account.
type watcher struct {
	account *account
	address string // empty: this process
}

func (w watcher) http() bool { return w.account.end == nil }

// An addressPort is an address at one of the ports: those over gRPC and those over HTTP are counted
// apart.
type addressPort struct {
	address string
	http    bool
}

// watches counts the watches of a node, so that neither a connection nor an address takes all
// places.
type watches struct {
	perConnection int

	mu struct {
		sync.Mutex
		all int
		of  map[*account]int
		at  map[addressPort]int
	}
}

func newWatches(perConnection int) *watches {
	w := &watches{perConnection: perConnection}
	w.mu.of, w.mu.at = make(map[*account]int), make(map[addressPort]int)
	return w
}

// add takes a place, or says why there is none.
func (w *watches) add(c watcher) *pb.Error {
	w.mu.Lock()
	defer w.mu.Unlock()
	own, at := w.mu.of[c.account], addressPort{c.address, c.http()}
	all, places := maxWatches, maxWatches
	what, limit := "watches of one connection", w.perConnection
	switch {
	case c.http():
		what, limit, places = "watches over HTTP of this node", httpWatches, httpWatches
	case own > 0:
		all -= reservedWatches
	}
	switch {
	case own >= limit:
		return protocol.QuotaExceeded(what, limit)
	case c.address != "" && w.mu.at[at] >= places/2:
		return protocol.QuotaExceeded("watches of clients at "+c.address, places/2)
	case w.mu.all >= all:
		return protocol.QuotaExceeded("watches of this node", all)
	}
	w.mu.all++
	w.mu.of[c.account]++
	w.mu.at[at]++
	return nil
}

// remove gives a place back.
func (w *watches) remove(c watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.all--
	less(w.mu.of, c.account)
	less(w.mu.at, addressPort{c.address, c.http()})
}

func less[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

func (w *watches) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.all
}
