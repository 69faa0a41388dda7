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

	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/server/replica"
	"github.com/lockstep-dev/lockstep/server/storage"
	"github.com/lockstep-dev/lockstep/server/transport"
)

// Errors of Submit.
var (
	// ErrOverloaded means that the inbox is full: nothing was taken, try later.
	ErrOverloaded = errors.New("node: overloaded")
	// ErrStopped means that the node runs no longer: nothing was taken.
	ErrStopped = errors.New("node: stopped")
)

// ClusterID is the id of the configuration of a cluster that starts from members (name -> peer address): 32 hexadecimal
// digits. Two clusters that began from the same members share it; their births differ.
func ClusterID(members map[string]string) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(members)) {
		h.Write([]byte(name + "=" + members[name] + "\n"))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// ID is the id of the node called name in a cluster. It is never zero.
func ID(clusterID, name string) uint64 {
	sum := sha256.Sum256([]byte("lockstep node\x00" + clusterID + "\x00" + name))
	return max(1, binary.BigEndian.Uint64(sum[:8]))
}

// A Config is what New needs.
type Config struct {
	Name    string            // own name, one of InitialCluster
	DataDir string            // made with mode 0700 if missing
	FS      vfs.FS            // default: the machine's
	Members map[string]string // the initial cluster, own node included: name -> peer address

	// Origin is what the data directory notes of the backup that it was made from, with Members; see [OriginOf]. Default: none.
	Origin string
	// Missing are those of Members, by name, that are known not to exist: a new cluster begins without waiting for
	// them. Default: none.
	Missing []string
	// Join is the id of a cluster that runs already and to which this node was added. Members are then those whom to
	// ask, own node included. Empty: the node is one of those that a cluster starts with.
	Join string

	// Zone is where this node is; peers are told. LeaderZone is where the leader should be. Default: none, and anywhere.
	Zone, LeaderZone string

	// ClientAddress is where clients reach this node; peers are told.
	ClientAddress string

	// Listener is where peers dial us. Run closes it.
	Listener net.Listener
	// Dial reaches a peer. Default: plain TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Secrets gives the secrets that the nodes of the cluster share; it is asked for each handshake. The first one is what this node
	// proves itself with, and each is accepted. Default, and without any: this node shakes hands with nobody.
	Secrets func() [][]byte

	// SnapshotBytesPerSecond bounds a snapshot that is sent. Default: 64 MiB/s.
	SnapshotBytesPerSecond int

	// TokenFloor, if not zero, is the first token floor of a new or restored cluster instead of one from the wall clock.
	TokenFloor machine.Token

	// Limits are those that the first leader of a new cluster logs. Default: machine.DefaultLimits.
	Limits machine.Limits
	// SessionsPerAddress bounds the sessions of one address of clients while this node leads. Default: that of package replica.
	SessionsPerAddress int
	// Random is where the ids of starts and births are drawn from. Default: crypto/rand.
	Random io.Reader
	// Built is when the binary was built. A token floor is refused while the wall clock is before it.
	Built machine.WallMillis

	// tune changes the replica's configuration, for tests.
	tune func(*replica.Config)

	// Events receives the history as it is applied, on the node's loop: it must not block. Default: none.
	Events func([]machine.Event)
	// Applied receives the entries as they are applied, under the same rule. Default: none.
	Applied func([]replica.Applied)
	// Replied receives the answers of each turn before they go out, and the time, under the same rule.
	Replied func([]replica.Reply, replica.Time)
	// Synced receives how long each synced write of the log took, on the disk's goroutine.
	Synced func(time.Duration)
	// Opened is told the id of the data directory's present life once the cluster that it belongs to is known, before any event
	// and before Loaded. Its error ends Run.
	Opened func(instance string) error
	// Loaded receives each state that was read from a snapshot: at the start before any event, and when a
	// leader has sent one, from another goroutine than the loop's. It may read the state until it returns.
	Loaded func(*machine.Machine)
	// Audit answers peers that ask for lines of this node's audit log, from one event up to, and not with, another. It may
	// block. Default: there is none.
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
			return fmt.Errorf("node: %q, named missing, is not another member of the initial cluster", name)
		}
	}
	return nil
}

// group is the one Raft group there is; keys and frames carry it for the day when there are more.
const group uint32 = 1

// A Node runs one replica. Make it with New, run it once with Run. All other methods may be
// called from any goroutine, before, during and after Run.
type Node struct {
	cfg     Config
	log     *slog.Logger
	config  atomic.Pointer[string] // see configured; a node that joins may learn it
	life    atomic.Pointer[life]   // nil until it is known which cluster this is
	id      atomic.Uint64          // 0 while a node that joins does not know it
	members []MemberStatus         // that the cluster starts with, or whom to ask; what never changes of them, by name
	fellows fellows
	door    door
	notes   notes
	waits   atomic.Pointer[string] // for whom a node with a fresh directory waits; nil: it does not
	marks   atomic.Pointer[[]machine.Mark]
	out     atomic.Pointer[string] // why the directory is an older copy, so that the node stays out; nil: it is none
	began   time.Time

	settling sync.Mutex // held while life changes

	inbox   inbox
	streams streams
	status  atomic.Pointer[replica.Status] // nil until the replica is made
	busy    diskClock
	counts  counts

	asked, answered atomic.Uint64 // statuses that were asked for, and are published
	looped          atomic.Bool   // the loop has ended
	published       atomic.Int64  // when status was stored, by Now
	marked          replica.Time  // when marks were stored; used by the loop
	barred          bool          // builds that know no feature levels are kept out of the directory; used by the loop

	// Made by Run before the goroutines that use them.
	store     *storage.Store
	transport *transport.Transport
	replica   *replica.Replica
	starts    storage.Starts
	lastEntry uint64                // the last one that was durable at the start of this process
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

// members lists the initial cluster by name. Those whom a joining node asks have no id yet.
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

// Connect makes a stream. deliver gets its replies in order, on the node's loop: it must
// not block. The slice is its own.
func (n *Node) Connect(deliver func([]replica.Reply)) replica.StreamID { return n.streams.add(deliver) }

// Disconnect ends a stream; the replica is told (replica.Gone). deliver isn't called any more once Disconnect has
// returned, but for a call that is under way on the loop.
func (n *Node) Disconnect(id replica.StreamID) {
	if n.streams.remove(id) {
		n.inbox.force(replica.Request{Stream: id, Received: n.Now(), Body: replica.Gone{}})
	}
}

// Submit hands requests over, all or none. The slice is the node's from then on. It returns ErrOverloaded or
// ErrStopped, never blocks, and answers come through Connect's deliver.
func (n *Node) Submit(reqs []replica.Request) error { return n.inbox.submit(reqs) }

// Now reads the clock that Request.Received is measured on.
func (n *Node) Now() replica.Time { return replica.Time(time.Since(n.began)) }

// handOverRetry is when a hand-over that has not worked is tried again: Raft gives one up after an election timeout.
const handOverRetry = 700 * time.Millisecond

// HandOver gives leadership to another member and returns when this node leads no longer, at once if it
// does not lead, or with ctx's error.
func (n *Node) HandOver(ctx context.Context) error { return n.HandOverTo(ctx, 0) }

// HandOverTo is like HandOver to the member with this id; 0 is the one with the longest log.
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
