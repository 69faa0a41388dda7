package transport

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of the connections that have not proved the secret.
const (
	// greetingTimeout is how long a connection may take until its greeting has arrived.
	greetingTimeout = time.Second
	// lobbyPlaces is how many there may be, and lobbyReserved how many of those are reserved for
	// hosts of peers.
	lobbyPlaces, lobbyReserved = 64, 16
	// lobbyPerHost is how many may come from one host, or from the host of several peers for each
	// of them.
	lobbyPerHost = 8
)

// A lobby has the accepted connections that have not proved the secret. A new one always finds a
// place, at the cost of the one that has been silent for longest: a node greets at once. So silent
// strangers keep no node out, not even from the same host.
type lobby struct {
	mu     sync.Mutex
	guests []*guest // in order of arrival
}

// A guest is one of those connections. lobby.mu guards all fields except host.
type guest struct {
	conn  net.Conn
	host  string
	peers int // number of peers at its host
	spoke bool
}

// enter gives a connection a place, if necessary that of another one. nil means that there is none.
func (l *lobby) enter(conn net.Conn, host string, peers int) *guest {
	l.mu.Lock()
	defer l.mu.Unlock()
	same := func(g *guest) bool { return g.host == host }
	stranger := func(g *guest) bool { return g.peers == 0 }
	room := true
	switch {
	case l.count(same) >= lobbyPerHost*max(1, peers):
		room = l.sendAway(same)
	case peers == 0 && l.count(stranger) >= lobbyPlaces-lobbyReserved:
		room = l.sendAway(stranger)
	case len(l.guests) >= lobbyPlaces:
		room = l.sendAway(stranger) || peers > 0 && l.sendAway(func(*guest) bool { return true })
	}
	if !room {
		return nil
	}
	g := &guest{conn: conn, host: host, peers: peers}
	l.guests = append(l.guests, g)
	return g
}

func (l *lobby) count(which func(*guest) bool) (n int) {
	for _, g := range l.guests {
		if which(g) {
			n++
		}
	}
	return n
}

// sendAway closes one of the connections that match: the first to arrive among those that have not
// greeted, or else the first of all. It reports whether there was one.
func (l *lobby) sendAway(which func(*guest) bool) bool {
	victim := -1
	for i, g := range l.guests {
		if which(g) && (victim < 0 || l.guests[victim].spoke && !g.spoke) {
			victim = i
		}
	}
	if victim < 0 {
		return false
	}
	l.guests[victim].conn.Close()
	l.guests = slices.Delete(l.guests, victim, victim+1)
	return true
}

// heard records that a connection has greeted.
func (l *lobby) heard(g *guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.spoke = true
}

// leave gives the place back, and reports whether the connection still had it.
func (l *lobby) leave(g *guest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.guests, g)
	if i >= 0 {
		l.guests = slices.Delete(l.guests, i, i+1)
	}
	return i >= 0
}

// A Refusal is a kind of failed handshake.
type Refusal int

// The kinds. All except Imposter are about connections to this node.
const (
	Silent      Refusal = iota // no greeting arrived
	Crowded                    // its place was needed for another
	Garbage                    // this build does not understand the greeting
	Unproved                   // it ended before it proved the secret
	WrongSecret                // its proof is wrong
	// OlderOrder: it wanted the acceptor's proof first, and is not a member known to run an older
	// build.
	OlderOrder
	// Mismatch: it proved the secret, but takes this node for another one, or is of another
	// cluster.
	Mismatch
	NotLetIn // it proved the secret, but is not let in
	Imposter // whatever answered at a peer's address did not prove the secret
	numRefusals
)

func (r Refusal) String() string {
	return [...]string{"silent", "crowded", "garbage", "unproved", "wrong_secret", "older_order", "mismatch", "not_let_in", "imposter"}[r]
}

// Refusals counts the failed handshakes of each kind.
type Refusals [numRefusals]uint64

// A RefusalCounter counts them as they occur. Its zero value is ready.
type RefusalCounter struct{ of [numRefusals]atomic.Uint64 }

// Read returns the counts so far. It may be called from any goroutine.
func (c *RefusalCounter) Read() (all Refusals) {
	for i := range all {
		all[i] = c.of[i].Load()
	}
	return all
}

func (t *Transport) count(r Refusal) { t.cfg.Refused.of[r].Add(1) }
