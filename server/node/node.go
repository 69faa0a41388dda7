package node

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/server/replica"
	"github.com/lockstep-dev/lockstep/server/storage"
	"github.com/lockstep-dev/lockstep/server/transport"
)

// Errors returned by Submit.
var (
	// ErrOverloaded means that the inbox is full: nothing was accepted, try later.
	ErrOverloaded = errors.New("node: overloaded")
	// ErrStopped means that the node is no longer running: nothing was accepted.
	ErrStopped = errors.New("node: stopped")
)

// ClusterID returns the id of the configuration of a cluster that starts from members (name -> peer
// address): 32 hexadecimal digits. Two clusters that began from the same members share it; their
// births differ.
func ClusterID(members map[string]string) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(members)) {
		h.Write([]byte(name + "=" + members[name] + "\n"))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// ID returns the id of the node called name in a cluster. It is never zero.
func ID(clusterID, name string) uint64 {
	sum := sha256.Sum256([]byte("lockstep node\x00" + clusterID + "\x00" + name))
	return max(1, binary.BigEndian.Uint64(sum[:8]))
}

// A Config configures New.
type Config struct {
	Name    string            // own name, one of InitialCluster
	DataDir string            // created with mode 0700 if missing
	FS      vfs.FS            // default: the machine's
	Members map[string]string // the initial cluster, including this node: name -> peer address

	// Origin is what the data directory records, together with Members, about the backup that it
	// was made from; see [OriginOf]. Default: none.
	Origin string
	// Missing are those of Members, by name, that are known not to exist: a new cluster begins
	// without waiting for them. Default: none.
	Missing []string
	// Join is the id of a running cluster that this node was added to. Members are then the nodes
	// to ask, including this one. Empty: the node is one of those that a cluster starts with.
	Join string

	// Zone is where this node is; it is reported to peers. LeaderZone is where the leader should
	// be. Default: none, and anywhere.
	Zone, LeaderZone string

	// ClientAddress is where clients reach this node; it is reported to peers.
	ClientAddress string

	// Listener is where peers dial us. Run closes it.
	Listener net.Listener
	// Dial connects to a peer. Default: plain TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Secrets returns the secrets that the nodes of the cluster share; it is called for each
	// handshake. This node proves its identity with the first one, and accepts each of them.
	// Default: none. Without any secret, this node shakes hands with nobody.
	Secrets func() [][]byte

	// SnapshotBytesPerSecond limits the rate at which a snapshot is sent. Default: 64 MiB/s.
	SnapshotBytesPerSecond int

	// TokenFloor, if not zero, is the first token floor of a new or restored cluster, instead of
	// one from the wall clock.
	TokenFloor command.Token

	// Limits are what the first leader of a new cluster logs. Default: command.DefaultLimits.
	Limits command.Limits
	// SessionsPerAddress bounds the sessions of one client address while this node leads. Default:
	// that of package replica.
	SessionsPerAddress int
	// Random is the source of the ids of starts and births. Default: crypto/rand.
	Random io.Reader
	// Built is when the binary was built. A token floor is refused while the wall clock is earlier.
	Built command.WallMillis

	// tune changes the replica's configuration, for tests.
	tune func(*replica.Config)

	// Events receives the history as it is applied, on the node's loop: it must not block. Default:
	// none.
	Events func([]command.Event)
	// Applied receives the entries as they are applied, on the node's loop: it must not block.
	// Default: none.
	Applied func([]replica.Applied)
	// Replied receives the answers of each turn before they go out, and the time, on the node's
	// loop: it must not block.
	Replied func([]lead.Reply, lead.Time)
	// Synced receives the duration of each synced write of the log, on the disk's goroutine.
	Synced func(time.Duration)
	// Opened receives the id of the data directory's present life once the node knows its cluster,
	// before any event and before Loaded. An error from it ends Run.
	Opened func(instance string) error
	// Loaded receives each state that was read from a snapshot: on start, before any event, and
	// when a leader has sent one, on another goroutine than the loop's. It may read the state until
	// it returns.
	Loaded func(*machine.Machine)
	// Audit gives peers that ask for them the lines of this node's audit log for the events in
	// [from, to). It may block. Default: there is no audit log.
	Audit func(from, to uint64) (io.ReadCloser, error)

	// Logger receives the log. Default: discard.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c *Config) validate() error {
	switch {
	case c.Members[c.Name] == "":
		return fmt.Errorf("node: %q is not in the initial cluster", c.Name)
	case c.DataDir == "":
		return errors.New("node: no data directory")
	case c.Listener == nil:
		return errors.New("node: no listener for peers")
	}
	for _, name := range c.Missing {
		if c.Members[name] == "" || name == c.Name {
			return fmt.Errorf("node: missing member %q is not another member of the initial cluster", name)
		}
	}
	return nil
}

// group is the only Raft group; keys and frames carry it in case there are more some day.
const group uint32 = 1

// A Node runs one replica. Create it with New, and run it once with Run. All other methods may be
// called from any goroutine, before, during and after Run.
type Node struct {
	cfg    Config
	log    *slog.Logger
	config atomic.Pointer[string] // see configured; a joining node may learn it
	life   atomic.Pointer[life]   // nil until the node knows which cluster this is
	id     atomic.Uint64          // 0 while a joining node does not know it
	// members are what the cluster starts with, or whom to ask; their constant fields, by name.
	members []MemberStatus
	fellows fellows
	door    door
	notes   notes
	waits   atomic.Pointer[string] // whom a node with a fresh directory waits for; nil: nobody
	marks   atomic.Pointer[[]machine.Mark]
	// out is why the directory is an older copy, so that the node stays out; nil: it is not.
	out   atomic.Pointer[string]
	began time.Time

	settling sync.Mutex // held while life changes

	inbox   inbox
	streams streams
	status  atomic.Pointer[replica.Status] // nil until the replica exists
	busy    diskClock
	counts  counts

	asked, answered atomic.Uint64 // numbers of the statuses requested and published
	looped          atomic.Bool   // the loop has ended
	published       atomic.Int64  // when status was stored, by Now
	marked          lead.Time     // when marks were stored; used only by the loop
	// barred: builds that know no feature levels are kept out of the directory; used only by the
	// loop.
	barred bool

	// Set by Run before the goroutines that use them start.
	store     *storage.Store
	transport *transport.Transport
	replica   *replica.Replica
	starts    storage.Starts
	lastEntry uint64                // the last one that was durable when this process started
	joins     *transport.JoinAnswer // of a node that joins with a fresh directory
	disk      *disk
	snapshots *snapshotWriter
	sending   senders
	// fatal ends Run with its error.
	fatal context.CancelCauseFunc
}

// New checks the configuration. It opens nothing.
func New(cfg Config) (*Node, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, log: cfg.Logger, began: time.Now(), inbox: newInbox()}
	config := cfg.Join
	if cfg.Join == "" {
		config = RestoredClusterID(cfg.Origin, cfg.Members)
		n.id.Store(ID(config, cfg.Name))
	}
	n.config.Store(&config)
	n.members = members(config, &cfg)
	n.busy.began = n.began
	n.streams.init()
	return n, nil
}

// members lists the initial cluster by name. The nodes that a joining node asks have no id yet.
func members(cluster string, cfg *Config) []MemberStatus {
	var all []MemberStatus
	for _, name := range slices.Sorted(maps.Keys(cfg.Members)) {
		m := MemberStatus{Name: name, PeerAddress: cfg.Members[name], Self: name == cfg.Name}
		if cfg.Join == "" {
			m.ID = ID(cluster, name)
		}
		if m.Self {
			m.ClientAddress, m.Reachable = cfg.ClientAddress, true
		}
		all = append(all, m)
	}
	return all
}

// Connect makes a stream. deliver gets its replies in order, on the node's loop: it must not block.
// It owns the slice.
func (n *Node) Connect(deliver func([]lead.Reply)) lead.StreamID { return n.streams.add(deliver) }

// Disconnect ends a stream and reports that to the replica (lead.Gone). deliver isn't called
// once Disconnect has returned, except for a call already in progress on the loop.
func (n *Node) Disconnect(id lead.StreamID) {
	if n.streams.remove(id) {
		n.inbox.force(lead.Request{Stream: id, Received: n.Now(), Body: lead.Gone{}})
	}
}

// Submit hands requests over, all or none. The node owns the slice from then on. Submit returns
// ErrOverloaded or ErrStopped and never blocks; answers come through Connect's deliver.
func (n *Node) Submit(reqs []lead.Request) error { return n.inbox.submit(reqs) }

// Now reads the clock that Request.Received refers to.
func (n *Node) Now() lead.Time { return lead.Time(time.Since(n.began)) }

// handOverRetry is when a transfer that has not succeeded is tried again: Raft abandons one after
// an election timeout.
const handOverRetry = 700 * time.Millisecond

// HandOver transfers leadership to another member. It returns when this node no longer leads, at
// once if it does not lead, or with ctx's error.
func (n *Node) HandOver(ctx context.Context) error { return n.HandOverTo(ctx, 0) }

// HandOverTo is like HandOver, to the member with this id; 0 is the one with the longest log.
func (n *Node) HandOverTo(ctx context.Context, to uint64) error {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	var asked time.Time
	for n.Status().Role == Leader && !n.inbox.stopped() {
		if time.Since(asked) > handOverRetry {
			asked = time.Now()
			n.inbox.push(replica.HandOver{To: to})
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("node: hand over leadership: %w", ctx.Err())
		case <-poll.C:
		}
	}
	return nil
}
