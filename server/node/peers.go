package node

import (
	"context"
	"errors"
	"fmt"
	"io"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/replica"
)

var (
	// ErrReplaced means that other nodes know this one with another data directory. This directory
	// lacks the votes and acknowledgements given with the other, so taking part could break
	// guarantees.
	ErrReplaced = errors.New("the data directory of this node was replaced")
	// ErrRemoved means that this node is no longer a member of the cluster.
	ErrRemoved = errors.New("this node was removed")
	// ErrNotAdded means that the cluster does not expect a new node with this name.
	ErrNotAdded = errors.New("the cluster rejected this node")
)

// send hands messages to the transport, and snapshots to connections of their own.
func (n *Node) send(ctx context.Context, out *replica.Output) {
	if n.out.Load() != nil {
		return
	}
	msgs := out.Messages
	for i := 0; i < len(msgs); i++ {
		if msgs[i].GetType() == raftpb.MsgSnap {
			n.sendSnapshot(ctx, msgs[i])
			msgs = append(append([]*raftpb.Message(nil), msgs[:i]...), msgs[i+1:]...)
			i--
		}
	}
	if len(msgs) > 0 {
		n.transport.Send(group, msgs)
	}
}

// A peerHandler handles what the transport receives.
type peerHandler struct{ n *Node }

// Receive passes messages on to the loop.
func (h peerHandler) Receive(g uint32, msgs []*raftpb.Message) {
	if g == group && h.n.out.Load() == nil {
		h.n.inbox.receive(msgs)
	}
}

// Unreachable reports to the loop that messages were dropped.
func (h peerHandler) Unreachable(node uint64) { h.n.inbox.push(replica.Unreachable{ID: node}) }

// ReceiveSnapshot stores and loads a snapshot.
func (h peerHandler) ReceiveSnapshot(_ context.Context, g uint32, msg *raftpb.Message, content io.Reader) error {
	if g != group {
		return fmt.Errorf("node: unknown group %d", g)
	}
	if out := h.n.out.Load(); out != nil {
		return errors.New("node: " + *out)
	}
	if r := h.n.status.Load(); r != nil {
		if why := replica.OutOfProportion(msg, r.Term, r.LastIndex); why != "" {
			h.n.counts.disproportionate.Add(1)
			return errors.New("node: implausible snapshot: " + why)
		}
	}
	return h.n.receiveSnapshot(msg, content)
}
