package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sync/errgroup"

	"github.com/lockstep-dev/lockstep/server/replica"
	"github.com/lockstep-dev/lockstep/server/storage"
	"github.com/lockstep-dev/lockstep/server/transport"
)

var (
	// ErrReplaced means that other nodes know this one with another data directory. That one's votes and
	// acknowledgements are missing here, so taking part could break promises.
	ErrReplaced = errors.New("this node's data directory was replaced")
	// ErrRemoved means that this node is a member of the cluster no more.
	ErrRemoved = errors.New("this node was removed")
	// ErrNotAdded means that the cluster does not expect a new node of this name.
	ErrNotAdded = errors.New("the cluster does not let this node join")
)

// send hands messages to the transport, and snapshots to their own connections.
func (n *Node) send(ctx context.Context, out *replica.Output) {
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

// A peerHandler takes what the transport brings.
type peerHandler struct{ n *Node }

// Admit refuses a node that was removed, and a known one that comes with another data directory. One that is not known
// yet is let in: this node may lag behind its adding, and may need it as its leader.
func (h peerHandler) Admit(id transport.Identity) error {
	logged, known := h.n.logged(id.Node)
	switch {
	case logged.Removed:
		return transport.NotAdmitted(replica.RemovedText(logged.Name))
	case known && logged.Instance != [16]byte{} && logged.Instance != id.Instance:
		return notThatDirectory(id, logged.Instance)
	}
	if err := h.n.recall(id); err != nil {
		return err
	}
	if !known {
		h.n.befriend(transport.Peer{Node: id.Node, Name: id.Name, Address: id.PeerAddress})
	}
	h.n.inbox.push(replica.Met{ID: id.Node, Instance: id.Instance})
	return nil
}

// recall compares with the directory that the peer came with when this node met it first.
func (n *Node) recall(id transport.Identity) error {
	met, ok, err := n.store.KnownInstance(id.Node)
	if err != nil {
		return err
	}
	if !ok {
		return n.store.RememberInstance(id.Node, id.Instance)
	}
	if met != storage.InstanceID(id.Instance) {
		return notThatDirectory(id, met)
	}
	return nil
}

func notThatDirectory(id transport.Identity, known storage.InstanceID) error {
	return transport.NotAdmitted(fmt.Sprintf("node %s is known here with the data directory %s, and comes with %s: put "+
		"the old directory back, or make it a new member with \"lockstep member replace %s\" and start it with an empty "+
		"directory and --join", id.Name, known, storage.InstanceID(id.Instance), id.Name))
}

// Receive passes messages to the loop.
func (h peerHandler) Receive(g uint32, msgs []*raftpb.Message) {
	if g == group {
		h.n.inbox.receive(msgs)
	}
}

// Rejected ends the node: it must not vote or acknowledge under an id whose past it has lost.
func (h peerHandler) Rejected(node uint64, err error) {
	h.n.fatal(fmt.Errorf("%w: %s: %w", rejection(err), h.n.nameOf(node), err))
}

// rejection tells the two reasons apart that peers have.
func rejection(err error) error {
	if strings.Contains(err.Error(), "was removed") {
		return ErrRemoved
	}
	return ErrReplaced
}

// Unreachable passes on that messages were dropped.
func (h peerHandler) Unreachable(node uint64) { h.n.inbox.push(replica.Unreachable{ID: node}) }

// ReceiveSnapshot stores and loads a snapshot.
func (h peerHandler) ReceiveSnapshot(_ context.Context, g uint32, msg *raftpb.Message, content io.Reader) error {
	if g != group {
		return fmt.Errorf("node: group %d is not here", g)
	}
	return h.n.receiveSnapshot(msg, content)
}

// askPeers asks the others, before a node without a past takes part, whether it has one. It returns when a majority (this
// node included) knows nothing against it: without a majority there is nothing to take part in.
func (n *Node) askPeers(ctx context.Context) error {
	agreed := map[uint64]bool{n.id.Load(): true}
	for round := 0; ; round++ {
		if err := n.askAll(ctx, agreed); err != nil || ctx.Err() != nil {
			return err
		}
		if len(agreed) > len(n.members)/2 {
			return nil
		}
		if round%50 == 1 {
			n.log.Info("new data directory: waiting for a majority of the members before taking part",
				"agreed", len(agreed), "members", len(n.members))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// askAll asks all that have not agreed yet, at once.
func (n *Node) askAll(ctx context.Context, agreed map[uint64]bool) error {
	var g errgroup.Group
	answers := make([]error, len(n.members))
	for i, m := range n.members {
		if !agreed[m.ID] {
			g.Go(func() error {
				answers[i] = n.transport.Ask(ctx, m.ID)
				if errors.Is(answers[i], transport.ErrNotAdmitted) {
					return fmt.Errorf("%w: %s: %w", rejection(answers[i]), m.Name, answers[i])
				}
				return nil
			})
		}
	}
	err := g.Wait()
	for i, m := range n.members {
		if answers[i] == nil {
			agreed[m.ID] = true
		}
	}
	return err
}
