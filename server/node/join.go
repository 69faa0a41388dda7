package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/server/replica"
	"github.com/lockstep-dev/lockstep/server/storage"
	"github.com/lockstep-dev/lockstep/server/transport"
)

const (
	// joinPause is the pause between two rounds of asking the members.
	joinPause = 300 * time.Millisecond
	// joinRefusals is the number of rounds, in which most members refuse and none agrees, after
	// which a joining node gives up: a member may lag behind for a moment.
	joinRefusals = 20
)

func (n *Node) identity(instance storage.InstanceID) transport.Identity {
	return transport.Identity{
		ClusterID: n.configured(), Node: n.id.Load(), Instance: instance, Name: n.cfg.Name,
		ClientAddress: n.cfg.ClientAddress, PeerAddress: n.cfg.Members[n.cfg.Name], Level: command.FeatureLevel, Zone: n.cfg.Zone,
	}
}

// learnID finds the id of a node that joins a cluster: in its directory, or by asking the members.
func (n *Node) learnID(ctx context.Context) error {
	if n.cfg.Join == "" {
		return nil
	}
	owner, found, err := storage.ReadOwner(n.cfg.FS, n.cfg.DataDir)
	if err != nil {
		return err
	}
	if found {
		n.id.Store(owner.NodeID)
		n.config.Store(&owner.ClusterID) // openStore compares it
		return nil
	}
	answer, err := n.askToJoin(ctx, storage.InstanceID{})
	if err != nil || ctx.Err() != nil {
		return err
	}
	n.id.Store(answer.Node)
	n.joins = &answer
	if answer.Cluster != "" {
		n.config.Store(&answer.Cluster)
	}
	return nil
}

// joinVoters asks which voters the cluster began with.
func (n *Node) joinVoters(ctx context.Context) ([]uint64, error) {
	answer, err := n.askToJoin(ctx, n.store.InstanceID())
	if err == nil && ctx.Err() == nil && answer.Node != n.id.Load() {
		err = fmt.Errorf("%w: member %q has a different id by now: delete this data directory and start again", ErrNotAdded, n.cfg.Name)
	}
	if err == nil && answer.Birth != "" {
		err = n.settleAs(answer.Birth)
	}
	return answer.Founders, err
}

// askToJoin asks the members until one answers, and records the peers that it names. Meanwhile
// requests are refused.
func (n *Node) askToJoin(ctx context.Context, instance storage.InstanceID) (transport.JoinAnswer, error) {
	cfg := transport.Config{Self: n.identity(instance), Dial: n.cfg.Dial, Secrets: n.cfg.Secrets}
	for refusals, round := 0, 0; ; round++ {
		var answers []error
		for _, m := range n.members {
			if m.Self {
				continue
			}
			answer, err := transport.AskToJoin(ctx, cfg, m.PeerAddress)
			if err == nil {
				for _, p := range answer.Peers {
					n.befriend(p)
				}
				return answer, nil
			}
			answers = append(answers, fmt.Errorf("%s: %w", m.Name, err))
			if round%50 == 1 {
				n.log.Info("joining: cannot reach a member", "member", m.Name, "address", m.PeerAddress, "err", err)
			}
		}
		if refused := mostRefuse(answers); refused != nil {
			if refusals++; refusals >= joinRefusals {
				return transport.JoinAnswer{}, fmt.Errorf("%w: %w", ErrNotAdded, refused)
			}
		}
		select {
		case <-ctx.Done():
			return transport.JoinAnswer{}, nil
		case <-time.After(joinPause):
		}
	}
}

// mostRefuse returns the last refusal if most of the members that were asked have refused and
// proved that they belong to the cluster.
func mostRefuse(answers []error) (last error) {
	refused := 0
	for _, err := range answers {
		if (errors.Is(err, transport.ErrRefused) || errors.Is(err, transport.ErrNotAdmitted)) && !errors.Is(err, transport.ErrUnproved) {
			refused++
			last = err
		}
	}
	if refused <= len(answers)/2 {
		return nil
	}
	return last
}

// Join answers a node that was added and asks for its id.
func (h peerHandler) Join(id transport.Identity) (transport.JoinAnswer, error) {
	r := h.n.status.Load()
	if r == nil {
		return transport.JoinAnswer{}, errors.New("this node is starting")
	}
	answer := transport.JoinAnswer{Cluster: h.n.configured()}
	if life := h.n.life.Load(); life != nil {
		answer.Birth = life.birth.String()
	}
	if text := h.n.tooOld(&id); text != "" {
		return transport.JoinAnswer{}, transport.NotAdmitted(transport.Unwanted, text)
	}
	why := fmt.Sprintf("no member %q: add it first (lockstep member add)", id.Name)
	for _, m := range r.Members {
		if m.Founder {
			answer.Founders = append(answer.Founders, m.ID)
		}
		if m.Removed {
			continue
		}
		answer.Peers = append(answer.Peers, transport.Peer{Node: m.ID, Name: m.Name, Address: m.Address})
		if m.Name != id.Name {
			continue
		}
		answer.Node, why = m.ID, ""
		switch {
		case m.Founder:
			why = fmt.Sprintf("member %q is an initial member of the cluster: start it without --join, or replace it "+
				"first (lockstep member replace)", id.Name)
		case m.Instance != [16]byte{} && m.Instance != id.Instance:
			why = fmt.Sprintf("member %q joined with another data directory: restore that one, or replace the member first "+
				"(lockstep member replace)", id.Name)
		}
	}
	if why != "" {
		return transport.JoinAnswer{}, transport.NotAdmitted(transport.Unwanted, why)
	}
	return answer, nil
}

// checkMembership refuses to start a node that was removed or replaced, and lets a node that has no
// table yet ask which peers to talk to.
func (n *Node) checkMembership(ctx context.Context, m *machine.Machine) error {
	self, known := m.Member(n.id.Load())
	switch {
	case self.Removed:
		return fmt.Errorf("%w: %s", ErrRemoved, replica.RemovedText(self.Name))
	case known && self.Instance != [16]byte{} && self.Instance != n.store.InstanceID():
		return fmt.Errorf("%w: the log records another one for this node", ErrReplaced)
	case len(m.Members()) > 0 || n.cfg.Join == "" || len(n.peers()) > 0:
		return nil
	}
	_, err := n.askToJoin(ctx, n.store.InstanceID())
	return err
}
