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
	// greetingTimeout is how long one may take until its greeting is there.
	greetingTimeout = time.Second
	// lobbyPlaces is how many there may be, and lobbyReserved how many of those only hosts of peers may have.
	lobbyPlaces, lobbyReserved = 64, 16
	// lobbyPerHost is how many may come from one host, or from the host of several peers for each of those.
	lobbyPerHost = 8
)

// A lobby has the accepted connections that have not proved the secret. A new one always finds a place, at the cost of the one
// that has been silent for longest: a node greets at once. So silent strangers keep no node out, not even from the same host.
type lobby struct {
	mu     sync.Mutex
	guests []*guest // in the order in which they came
}

// A guest is one of those. lobby.mu guards its fields but host.
type guest struct {
	conn  net.Conn
	host  string
	peers int // that are at its host
	spoke bool
}

// enter gives a connection a place, if need be that of another one. nil means that there is none.
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

// sendAway takes the place of the first that came and has not greeted yet, or else of the first, and reports whether there was one.
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

// heard notes that a connection has greeted.
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

// The kinds. All but Imposter are of connections to this node.
const (
	Silent      Refusal = iota // no greeting came
	Crowded                    // its place was needed for another
	Garbage                    // what came is no greeting that this build understands
	Unproved                   // it ended before it proved the secret
	WrongSecret                // its proof is wrong
	OlderOrder                 // it wanted the acceptor's proof first, and is no member that is known to be of an older build
	Mismatch                   // it proved the secret, and takes this node for another one, or is of another cluster
	NotLetIn                   // it proved the secret, and is not let in
	Imposter                   // whoever answered at a peer's address did not prove the secret
	numRefusals
)

func (r Refusal) String() string {
	return [...]string{"silent", "crowded", "garbage", "unproved", "wrong_secret", "older_order", "mismatch", "not_let_in", "imposter"}[r]
}

// Refusals counts the failed handshakes of each kind.
type Refusals [numRefusals]uint64

// A RefusalCounter counts them as they come. Its zero value is ready.
type RefusalCounter struct{ of [numRefusals]atomic.Uint64 }

// Read tells how many there have been. It may be called from any goroutine.
func (c *RefusalCounter) Read() (all Refusals) {
	for i := range all {
		all[i] = c.of[i].Load()
	}
	return all
}

func (t *Transport) count(r Refusal) { t.cfg.Refused.of[r].Add(1) }
