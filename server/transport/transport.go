package transport

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// An Identity is what a node tells of itself in the handshake.
type Identity struct {
	ClusterID     string   `json:"cluster"`
	Node          uint64   `json:"node,string"`
	Instance      [16]byte `json:"instance"`
	Name          string   `json:"name"`
	ClientAddress string   `json:"client_address"`
}

// A Peer is another node and where it listens.
type Peer struct {
	Node    uint64
	Name    string
	Address string // host:port
}

// A Handler receives what peers send. Its methods are called from several
// goroutines and, but for ReceiveSnapshot, must not block.
type Handler interface {
	// Admit decides on a peer whose cluster and secret are right. The text of its error
	// is told to the peer.
	Admit(id Identity) error
	// Receive takes messages of one peer in the order sent. The slice is the callee's.
	Receive(msgs []*raftpb.Message)
	// Unreachable tells that messages to the peer were dropped, once per burst.
	Unreachable(node uint64)
	// ReceiveSnapshot reads the content of the snapshot that msg (a MsgSnap) announces. nil says that
	// it is durable. The sender is told the error's text.
	ReceiveSnapshot(ctx context.Context, msg *raftpb.Message, content io.Reader) error
}

// A Config is what New needs.
type Config struct {
	Self     Identity
	Peers    []Peer       // without Self
	Listener net.Listener // where peers dial us; Run closes it
	// Dial reaches a peer. Default: plain TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Secret is shared by the nodes of the cluster. Empty: anybody who knows the cluster's id is a node.
	Secret  []byte
	Handler Handler
	// SnapshotBytesPerSecond bounds one snapshot that is sent. Default: 64 MiB/s.
	SnapshotBytesPerSecond int
	// Logger receives the log. Default: discard.
	Logger *slog.Logger
}

// A PeerStatus is what is known of a peer.
type PeerStatus struct {
	Peer
	ClientAddress string // empty until the first handshake
	Reachable     bool   // our stream to it is up
	Since         time.Time
	Problem       string // why it is not reachable, for people
}

// ErrRefused is matched by an error of a handshake that the peer refused.
var ErrRefused = errors.New("refused by the peer")
