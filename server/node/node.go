package node

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/server/replica"
)

// Errors of Submit.
var (
	// ErrOverloaded means that the inbox is full: nothing was taken, try later.
	ErrOverloaded = errors.New("node: overloaded")
	// ErrStopped means that the node runs no longer: nothing was taken.
	ErrStopped = errors.New("node: stopped")
)

// A Member is one node of the initial cluster.
type Member struct {
	Name        string
	PeerAddress string // host:port
}

// ClusterID is the id of the cluster that starts from members (name -> peer address): 32 hexadecimal digits.
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

	// ClientAddress is where clients reach this node; peers are told.
	ClientAddress string

	// Listener is where peers dial us. Run closes it.
	Listener net.Listener
	// Dial reaches a peer. Default: plain TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Secret is shared by the nodes of the cluster; empty means none.
	Secret []byte

	// SnapshotBytesPerSecond bounds a snapshot that is sent. Default: 64 MiB/s.
	SnapshotBytesPerSecond int

	// TokenFloor, if not zero, is the first token floor of a new cluster instead of one from the wall clock.
	TokenFloor machine.Token

	// Events receives the history as it is applied, on the node's loop: it must not block. Default: none.
	Events func([]machine.Event)

	// Logger receives the log. Default: discard.
	Logger *slog.Logger
}

// A Status is how a node sees itself and its cluster.
type Status struct {
	ClusterID string
	ID        uint64
	Name      string
	Role      Role
	Term      uint64
	Leader    uint64 // 0: none known

	LeaderName          string
	LeaderClientAddress string // "": not known

	Serving bool   // leads and has applied an entry of its own term
	Commit  uint64 // index of the log
	Applied uint64
	Counts  machine.Counts
	Members []MemberStatus // by name
	// DiskBusy is how long the write under way takes already; 0 when none is.
	DiskBusy time.Duration
}

// A Role is what a node is in its group.
type Role uint8

// The roles. Starting means that the directory is read or peers are asked.
const (
	Starting Role = iota
	Follower
	Candidate
	Leader
)

func (r Role) String() string {
	return [...]string{"starting", "follower", "candidate", "leader"}[r]
}

// A MemberStatus is one member as this node sees it.
type MemberStatus struct {
	ID            uint64
	Name          string
	PeerAddress   string
	ClientAddress string // "": not known yet
	Leader        bool
	Self          bool
	Reachable     bool   // always true for the node itself
	Problem       string // why not
	Applied       uint64 // own applied index, or on the leader the index known to be durable there; else 0
}

// A Node runs one replica. Make it with New, run it once with Run. All other methods may be
// called from any goroutine, before, during and after Run.
type Node struct{ cfg Config }

// New checks the configuration. It opens nothing.
func New(cfg Config) (*Node, error) { panic("unfinished") }

// Run opens the data directory and serves until ctx is done or the node has to end. It returns nil
// after ctx, else the reason. It does not hand over leadership: call HandOver before.
func (n *Node) Run(ctx context.Context) error { panic("unfinished") }

// Connect makes a stream. deliver gets its replies in order, on the node's loop: it must
// not block, and must not call the node but for Submit's refusal.
func (n *Node) Connect(deliver func([]replica.Reply)) replica.StreamID { panic("unfinished") }

// Disconnect ends a stream; the replica is told (replica.Gone). Its deliver may still be called until Disconnect's
// request has been handled, not after.
func (n *Node) Disconnect(id replica.StreamID) { panic("unfinished") }

// Submit hands requests over, all or none. The slice is the node's from then on. It returns ErrOverloaded or
// ErrStopped, never blocks, and answers come through Connect's deliver.
func (n *Node) Submit(reqs []replica.Request) error { panic("unfinished") }

// Now reads the clock that Request.Received is measured on.
func (n *Node) Now() replica.Time { panic("unfinished") }

// Status tells how the node is. It is at most some milliseconds old.
func (n *Node) Status() Status { panic("unfinished") }

// HandOver gives leadership to another member and returns when this node leads no longer, at once if it
// does not lead, or with ctx's error.
func (n *Node) HandOver(ctx context.Context) error { panic("unfinished") }
