package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sync/errgroup"
)

var (
	// ErrRefused is matched by the error of a handshake that the peer refused.
	ErrRefused = errors.New("refused by the peer")
	// ErrUnproved is matched by the error of a handshake in which the other side did not prove the
	// secret: anybody may have answered.
	ErrUnproved = errors.New("cluster secret not proved")
	// ErrNotAdmitted is matched by errors made by NotAdmitted, here and at the peer.
	ErrNotAdmitted = errors.New("not admitted")
)

// An Identity is what a node says about itself in the handshake.
type Identity struct {
	ClusterID     string   `json:"cluster"`
	Node          uint64   `json:"node,string"`
	Instance      [16]byte `json:"instance"`
	Name          string   `json:"name"`
	ClientAddress string   `json:"client_address"`
	PeerAddress   string   `json:"peer_address"` // where its peers dial it

	// Older builds neither send nor read the fields below.

	// Level is the newest feature level that the node's build knows; 0: not reported.
	Level uint32 `json:"level,omitempty"`
	// Zone is where the node says that it is; "": not reported.
	Zone string `json:"zone,omitempty"`
	// Birth is the birth of the node's cluster in hexadecimal digits, empty while it knows none.
	Birth string `json:"birth,omitempty"`
	// Rootless says that its cluster began without a birth.
	Rootless bool `json:"rootless,omitempty"`
	// Start counts the starts of its directory, and StartIDs are the ids of the last ones, 4 bytes
	// each, the present one last.
	Start    uint64 `json:"start,omitempty"`
	StartIDs []byte `json:"start_ids,omitempty"`
	// LastEntry is the index of the last log entry that was durable when this process started; 0:
	// not reported.
	LastEntry uint64 `json:"last_entry,omitempty"`
	// Marks are log indexes and the hash of its state after each, 8 and 8 bytes.
	Marks []byte `json:"marks,omitempty"`
}

// A Peer is another node and where it listens.
type Peer struct {
	Node    uint64
	Name    string
	Address string // host:port
}

// A Handler receives what peers send. Its methods are called from several goroutines. Admit and
// ReceiveSnapshot may wait for the disk; the others must not block.
type Handler interface {
	// Admit decides on a peer whose cluster and secret are right. dialled says that the peer has
	// answered at its address; otherwise it has dialled us. The peer is told the text of the error.
	// An error made by NotAdmitted is also passed to its Rejected. A handshake that Admit delays
	// for more than 5 s fails, and is tried again.
	Admit(id Identity, dialled bool) error
	// Receive takes messages of one peer, in the order sent, except that votes and heartbeats may
	// overtake. The callee owns the slice.
	Receive(group uint32, msgs []*raftpb.Message)
	// Rejected reports that a peer's Admit has refused us with an error made by NotAdmitted. It is
	// called after each attempt.
	Rejected(node uint64, err error)
	// Unreachable reports that messages to the peer were dropped, once per burst.
	Unreachable(node uint64)
	// ReceiveSnapshot reads the content of the snapshot that msg (a MsgSnap) announces. nil means
	// that it is durable. The sender is told the text of an error.
	ReceiveSnapshot(ctx context.Context, group uint32, msg *raftpb.Message, content io.Reader) error
}

// A Config configures New.
type Config struct {
	Self Identity
	// Present returns Self with its current values; it is called for each handshake. Default: Self.
	Present  func() Identity
	Peers    []Peer       // without Self
	Listener net.Listener // where peers dial us; Run closes it
	// Dial connects to a peer. Default: plain TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Secrets returns the secrets that the nodes of the cluster share; it is called for each
	// handshake. This node proves its identity with the first one, and accepts each of them.
	// Default: none. Without any secret, no handshake succeeds.
	Secrets func() [][]byte
	Handler Handler
	// SnapshotBytesPerSecond limits the rate at which one snapshot is sent. Default: 64 MiB/s.
	SnapshotBytesPerSecond int
	// Audit returns the answer for a peer that asks for the lines of this node's audit log for the
	// events in [from, to). It is called from several goroutines and may block, and its answer is
	// closed. Default: peers that ask are refused.
	Audit func(from, to uint64) (io.ReadCloser, error)
	// Refused counts the handshakes that fail. Default: they are counted nowhere.
	Refused *RefusalCounter
	// Logger receives the log. Default: discard.
	Logger *slog.Logger
}

// A Transport connects one node with its peers. New makes it, Run runs it once.
type Transport struct {
	cfg   Config
	log   *slog.Logger
	table atomic.Pointer[peerTable] // replaced by SetPeers

	lobby     lobby         // accepted connections that have not proved the secret
	incoming  chan struct{} // a place for each one that has
	answering chan struct{} // the only place for an answer from the audit log

	mu struct {
		sync.Mutex
		streams   map[uint64]*conn // the accepted stream of each peer
		renewals  uint64           // calls of Renew
		receiving bool             // a snapshot is being received
		noise     time.Time        // when a stranger was last logged
		serving   context.Context  // the context of Run while it runs; peers added later run in it
		running   sync.WaitGroup   // the streams to peers
	}
}

// A peerTable has the present peers. It never changes.
type peerTable struct {
	peers map[uint64]*peer
	order []*peer // by node id
}

func (t *Transport) secrets() [][]byte {
	if t.cfg.Secrets == nil {
		return nil
	}
	return t.cfg.Secrets()
}

// find returns a present peer, or nil.
func (t *Transport) find(node uint64) *peer { return t.table.Load().peers[node] }

// New checks the configuration. It opens nothing.
func New(cfg Config) (*Transport, error) {
	if cfg.Self.Node == 0 || cfg.Self.ClusterID == "" || cfg.Handler == nil || cfg.Listener == nil {
		return nil, errors.New("transport: identity, handler or listener is missing")
	}
	if cfg.Dial == nil {
		cfg.Dial = dialTCP
	}
	if cfg.Present == nil {
		cfg.Present = func() Identity { return cfg.Self }
	}
	if cfg.SnapshotBytesPerSecond <= 0 {
		cfg.SnapshotBytesPerSecond = 64 << 20
	}
	if cfg.Refused == nil {
		cfg.Refused = new(RefusalCounter)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Transport{
		cfg: cfg,
		log: cfg.Logger,
		// Two connections per peer are in use; four more may be closing.
		incoming:  make(chan struct{}, 16+4*MaxPeers),
		answering: make(chan struct{}, 1),
	}
	t.mu.streams = make(map[uint64]*conn)
	t.table.Store(&peerTable{})
	seen := map[uint64]bool{cfg.Self.Node: true}
	for _, p := range cfg.Peers {
		if seen[p.Node] {
			return nil, fmt.Errorf("transport: node %016x is listed twice", p.Node)
		}
		seen[p.Node] = true
	}
	t.SetPeers(cfg.Peers)
	return t, nil
}

// MaxPeers bounds the peers of a node.
const MaxPeers = 16

// SetPeers replaces the peers. Streams to and from peers that are gone, or have moved, end; streams
// to new ones begin if Run is running. Self is left out. More than MaxPeers peers cause a panic.
func (t *Transport) SetPeers(peers []Peer) {
	if len(peers) > MaxPeers {
		panic(fmt.Sprintf("transport: %d peers, the limit is %d", len(peers), MaxPeers))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.table.Load()
	next := &peerTable{peers: make(map[uint64]*peer)}
	for _, p := range peers {
		if p.Node == t.cfg.Self.Node || next.peers[p.Node] != nil {
			continue
		}
		n := old.peers[p.Node]
		if n == nil || n.Peer != p {
			n = newPeer(t, p)
		}
		next.peers[p.Node] = n
		next.order = append(next.order, n)
	}
	slices.SortFunc(next.order, func(a, b *peer) int { return cmp.Compare(a.Node, b.Node) })
	t.table.Store(next)
	for _, p := range old.order {
		if now := next.peers[p.Node]; now != p {
			p.stop()
			if stream := t.mu.streams[p.Node]; now == nil && stream != nil {
				stream.Close()
			}
		}
	}
	for _, p := range next.order {
		if old.peers[p.Node] != p {
			t.startLocked(p)
		}
	}
}

// startLocked runs the stream to a peer if Run is running. t.mu must be held.
func (t *Transport) startLocked(p *peer) {
	if t.mu.serving == nil || t.mu.serving.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(t.mu.serving)
	p.stop = cancel
	t.mu.running.Go(func() {
		defer cancel()
		p.run(ctx)
	})
}

// dialTCP is the default of Config.Dial.
func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: time.Second, KeepAlive: 5 * time.Second}
	c, err := d.DialContext(ctx, "tcp", address)
	if t, ok := c.(*net.TCPConn); ok {
		// A hint; the stream works with any size.
		_ = t.SetWriteBuffer(writeLimit)
	}
	return c, err
}

// Run accepts and dials until ctx is done, or the listener fails. It closes the listener, and
// returns after all its goroutines have ended.
func (t *Transport) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return t.accept(ctx) })
	t.mu.Lock()
	t.mu.serving = ctx
	for _, p := range t.table.Load().order {
		t.startLocked(p)
	}
	t.mu.Unlock()
	err := g.Wait()
	t.mu.running.Wait() // no more are added: ctx is done
	if ctx.Err() != nil && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Send queues messages to their peers and never blocks. Messages of one call go out together.
// Messages without room or without a connection are dropped. The messages must not be modified
// afterwards.
func (t *Transport) Send(group uint32, msgs []*raftpb.Message) {
	table := t.table.Load()
	for _, m := range msgs {
		if p := table.peers[m.GetTo()]; p != nil {
			p.queue(group, m)
		}
	}
	for _, p := range table.order {
		p.flush()
	}
}

// Ask only performs a handshake with a peer. nil means that the peer is there and takes us for what
// we say; [ErrRefused] that it doesn't; anything else that it could not be asked. The identity is
// what the peer said about itself, refusal or not, if it has proved the secret; else zero.
func (t *Transport) Ask(ctx context.Context, node uint64) (Identity, error) {
	p := t.find(node)
	if p == nil {
		return Identity{}, fmt.Errorf("transport: unknown peer %016x", node)
	}
	c, id, err := t.dial(ctx, p.Peer, purposeAsk)
	if err != nil {
		return id, err
	}
	p.met(c.peer)
	return id, c.Close()
}

// Reset ends our stream to a peer, which is dialled again at once: another process may be at its
// address now.
func (t *Transport) Reset(node uint64) {
	if p := t.find(node); p != nil {
		p.reset()
	}
}

// Verify asks which node is at a peer's address, with a separate handshake: our stream goes on. It
// returns at once, and only one such handshake per peer runs at a time.
func (t *Transport) Verify(node uint64) {
	if p := t.find(node); p != nil {
		p.dialledUs()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.verifyLocked(p)
	}
}

// Renew repeats the handshake with every peer, because what it reports has changed. The streams go
// on, except those of a peer where the handshake fails.
func (t *Transport) Renew() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.renewals++
	for _, p := range t.table.Load().order {
		t.verifyLocked(p)
	}
}

// renewed counts the calls of Renew.
func (t *Transport) renewed() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.renewals
}

// renew repeats the handshake with a peer whose stream began with what was true before the last
// Renew.
func (t *Transport) renew(p *peer, began uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if began != t.mu.renewals {
		p.renewed = began
		t.verifyLocked(p)
	}
}

func (t *Transport) verifyLocked(p *peer) {
	ctx := t.mu.serving
	if ctx == nil || ctx.Err() != nil || p.asking {
		return
	}
	p.asking = true
	t.mu.running.Go(func() {
		for again := true; again; {
			began := t.renewed()
			_, err := t.Ask(ctx, p.Node)
			again = t.asked(ctx, p, began, err)
		}
	})
}

// asked handles the end of a handshake of Verify or Renew, and reports whether another one is due.
func (t *Transport) asked(ctx context.Context, p *peer, began uint64, err error) (again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if stream := t.mu.streams[p.Node]; err != nil && p.renewed != began && ctx.Err() == nil {
		t.log.Info("reconnecting to peer for a new handshake", "peer", p.Name, "address", p.Address, "err", err)
		p.reset()
		if stream != nil {
			stream.Close()
		}
	}
	p.renewed = began
	p.asking = began != t.mu.renewals && ctx.Err() == nil
	return p.asking
}

// A PeerStatus is what is known about a peer.
type PeerStatus struct {
	Peer
	ClientAddress string // empty until the first handshake
	Reachable     bool   // our stream to it is up
	Problem       string // why it is not, for people
	// Verdict is why the peer does not let us in; zero: it does, or has not been asked.
	Verdict Verdict
}

// Peers returns the status of all peers, by node id.
func (t *Transport) Peers() []PeerStatus {
	order := t.table.Load().order
	all := make([]PeerStatus, 0, len(order))
	for _, p := range order {
		all = append(all, p.status())
	}
	return all
}
