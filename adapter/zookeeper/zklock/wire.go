package zklock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep/lease"
)

// A wire makes the connections of one session. From them it learns what the client library does not
// expose: when the session was requested, what timeout the server granted, and that the session has
// expired. It ends silent connections, and makes none once the session is over, so that the library
// cannot open another session in its place.
//
// It is the library's dialer and its host provider. The library calls Next and dial in turn from
// one goroutine.
type wire struct {
	clock      lease.Clock
	forOpening time.Duration // how long a server has to answer when there is no session yet
	evidence   *evidence
	life       context.Context // done when no more connections may be made
	end        context.CancelFunc
	tick       time.Duration // as configured
	opened     chan opening  // receives the first answer
	resumed    chan struct{} // receives a value when a later connection has taken the session over
	expired    chan struct{} // closed when a server has said that the session is over
	backoff    lease.Backoff
	servers    []string
	next       int // index into servers
	connect    func(ctx context.Context, network, address string) (net.Conn, error)

	mu      sync.Mutex
	id      int64 // of the session; 0 before it was opened
	timeout time.Duration
	unheard int // consecutive connections without an answer
	isOver  bool
	link    *link // the current connection
}

// An opening is the answer that opened a session.
type opening struct {
	id      int64
	sent    time.Duration // when it was requested, on the clock
	timeout time.Duration
}

func newWire(cfg Config, clock lease.Clock) *wire {
	w := &wire{
		clock: clock, forOpening: cfg.openWithin() / 2, timeout: cfg.TTL, evidence: &evidence{},
		tick: cfg.TickTime, opened: make(chan opening, 1), resumed: make(chan struct{}, 1), expired: make(chan struct{}),
		backoff: lease.Backoff{Base: 20 * time.Millisecond, Max: max(cfg.TTL/12, 50*time.Millisecond)},
		servers: slices.Clone(cfg.Servers), connect: cfg.Dial,
	}
	rand.Shuffle(len(w.servers), func(i, j int) { w.servers[i], w.servers[j] = w.servers[j], w.servers[i] })
	w.life, w.end = context.WithCancel(context.Background())
	return w
}

// close ends the current connection and prevents others.
func (w *wire) close() {
	w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isOver = true
	if w.link != nil {
		w.link.Conn.Close()
	}
}

// Init implements [zk.HostProvider]. The wire already has its servers.
func (w *wire) Init([]string) error { return nil }

// Len implements [zk.HostProvider].
func (w *wire) Len() int { return len(w.servers) }

// Next implements [zk.HostProvider]. The library pauses for a second when Next reports that all
// servers were tried, which is too long for short leases, so dial pauses instead. But only then
// does the library check whether it was closed.
func (w *wire) Next() (server string, allTried bool) {
	w.next++
	return w.servers[w.next%len(w.servers)], w.life.Err() != nil
}

// Connected implements [zk.HostProvider].
func (w *wire) Connected() { w.backoff.Reset() }

var errSessionOver = errors.New("the session is over")

// dial is the library's [zk.Dialer].
func (w *wire) dial(network, address string, _ time.Duration) (net.Conn, error) {
	if err := w.pause(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(w.life, w.patience(nil))
	defer cancel()
	conn, err := w.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return w.adopt(conn)
}

// pause keeps the library from trying servers in a tight loop. The first wait after a working
// connection is short.
func (w *wire) pause() error {
	timer := time.NewTimer(w.backoff.Next() / time.Duration(len(w.servers)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-w.life.Done():
		return errSessionOver
	}
}

func (w *wire) adopt(conn net.Conn) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isOver {
		conn.Close()
		return nil, errSessionOver
	}
	w.link = &link{Conn: conn, wire: w, rewatched: make(chan struct{}), isSettled: w.id == 0}
	w.unheard++
	return w.link, nil
}

// patience is how long a connection may be silent, which is longer before the answer to its first
// request. Without a connection it is the time for connecting.
func (w *wire) patience(l *link) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l == nil || l == w.link && w.unheard == 0 {
		return quietFor(w.timeout)
	}
	if w.id == 0 {
		return w.forOpening
	}
	return answerFor(w.timeout, w.unheard-1)
}

// answered handles the answer to a request for the session. An error makes the library drop the
// connection.
func (w *wire) answered(o opening) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.isOver:
		return errSessionOver
	case o.id == 0: // let through: the library then fails the waiting requests with the right error
		w.isOver = true
		close(w.expired)
		return nil
	case w.id != 0 && (o.id != w.id || o.timeout < w.timeout):
		return fmt.Errorf("the server gave session %x for %v, it should be %x for %v", o.id, o.timeout, w.id, w.timeout)
	case w.id == 0:
		w.id, w.timeout = o.id, o.timeout
		w.opened <- o
	default:
		select {
		case w.resumed <- struct{}{}:
		default:
		}
	}
	w.unheard = 0
	w.evidence.connected(o.sent, newTiming(w.timeout, w.tick))
	return nil
}

// A link is one connection. The library reads and writes it from one goroutine each, but reads the
// answer to its first request on the goroutine that wrote it.
type link struct {
	net.Conn
	wire  *wire
	sent  time.Duration // time of the first write, which requests the session
	wrote bool
	head  []byte // what was read of its answer

	rewatched chan struct{} // closed when the library has set its watches again
	isSettled bool          // nothing has to wait for that any longer
}

// Write records when the session was requested.
func (l *link) Write(p []byte) (int, error) {
	switch {
	case !l.wrote:
		l.wrote, l.sent = true, l.wire.clock.Now()
	case len(p) >= 12 && binary.BigEndian.Uint32(p[8:]) == setWatches:
		defer l.closeRewatched()
	}
	return l.Conn.Write(p)
}

// setWatches is the type of the library's request to set the watches of an earlier connection
// again.
const setWatches = 101

func (l *link) closeRewatched() {
	select {
	case <-l.rewatched: // a long list takes more than one request
	default:
		close(l.rewatched)
	}
}

// settleWithin bounds the wait for that request; there is none without watches.
const settleWithin = 25 * time.Millisecond

// settle holds back the first answer on a resumed connection until the library has set its watches
// again. The library asks for events since the last transaction it has seen, but reads that value
// while answers are already advancing it: a data race, which could lose an event.
func (l *link) settle() {
	l.isSettled = true
	timer := time.NewTimer(settleWithin)
	defer timer.Stop()
	select {
	case <-l.rewatched:
	case <-timer.C:
	}
}

// headBytes covers the length of the answer, the version of the protocol, the timeout in
// milliseconds and the session's id.
const headBytes = 4 + 4 + 4 + 8

// Read inspects the answer to the session request.
func (l *link) Read(p []byte) (int, error) {
	if !l.isSettled && len(l.head) == headBytes {
		l.settle()
	}
	n, err := l.Conn.Read(p)
	if len(l.head) < headBytes && n > 0 {
		l.head = append(l.head, p[:min(n, headBytes-len(l.head))]...)
		if len(l.head) == headBytes {
			if refused := l.wire.answered(l.parse()); refused != nil {
				return 0, refused
			}
		}
	}
	return n, err
}

func (l *link) parse() opening {
	timeout := int32(binary.BigEndian.Uint32(l.head[8:]))
	return opening{
		id:      int64(binary.BigEndian.Uint64(l.head[12:])),
		sent:    l.sent,
		timeout: time.Duration(timeout) * time.Millisecond,
	}
}

// SetReadDeadline sets an earlier deadline than the library wants, so that a silent server is
// abandoned in time. The library sets one before each read, except for the rest of an answer, which
// it reads without one.
func (l *link) SetReadDeadline(t time.Time) error { return l.Conn.SetReadDeadline(l.earlier(t)) }

// SetWriteDeadline does the same for a server that does not read.
func (l *link) SetWriteDeadline(t time.Time) error { return l.Conn.SetWriteDeadline(l.earlier(t)) }

func (l *link) earlier(t time.Time) time.Time {
	if limit := time.Now().Add(l.wire.patience(l)); t.IsZero() || t.After(limit) {
		return limit
	}
	return t
}
