package node

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/server/storage"
	"github.com/lockstep-dev/lockstep/server/transport"
)

// configured returns the id that results from the configuration: from the initial members, or from
// the backup that they were restored from. It shows that two nodes were configured alike, and
// founders' ids are derived from it.
func (n *Node) configured() string { return *n.config.Load() }

// clusterID returns the id that distinguishes this cluster from every other: its birth or, if it
// began without one, the configured id, even if it has got a birth since. It is empty until the
// node knows which.
func (n *Node) clusterID() string {
	switch life := n.life.Load(); {
	case life == nil:
		return ""
	case life.rootless, life.birth.GrewFrom(n.configured()):
		return n.configured()
	default:
		return life.birth.String()
	}
}

// A life identifies the cluster that a node belongs to, once it knows.
type life struct {
	birth    command.BirthID
	rootless bool // it began at a feature level without births; birth is zero
}

func parseBirth(text string) (b command.BirthID, err error) {
	if raw, err := hex.DecodeString(text); err != nil || len(raw) != len(b) {
		return b, fmt.Errorf("node: %.64q is not a birth id", text)
	} else {
		copy(b[:], raw)
	}
	return b, nil
}

// settle records which cluster the node belongs to, durably and before anything else is done with
// it. Once known, it does not change, except that a cluster without a birth may get one.
func (n *Node) settle(now life) error {
	if now == (life{}) {
		return nil
	}
	n.settling.Lock()
	defer n.settling.Unlock()
	known := n.life.Load()
	switch {
	case known != nil && (*known == now || now.rootless):
		return nil
	case known != nil && !known.rootless:
		return fmt.Errorf("node: this directory belongs to cluster %s, but receives the state of %s", known.birth, now.birth)
	case known != nil && !now.birth.GrewFrom(n.configured()):
		return fmt.Errorf("node: this directory belongs to cluster %s without a birth, but receives the state of %s", n.configured(), now.birth)
	}
	if !now.rootless {
		if err := n.store.RememberBirth(storage.BirthID(now.birth)); err != nil {
			return fmt.Errorf("node: %w", err)
		}
	}
	n.life.Store(&now)
	if n.transport != nil {
		n.transport.Renew() // peers admitted before are judged again, here and there
	}
	if known != nil || n.cfg.Opened == nil {
		return nil
	}
	err := n.cfg.Opened(n.store.InstanceID().String())
	if err != nil && n.fatal != nil {
		n.fatal(err) // there is no retry, and the caller may only report it to a peer
	}
	return err
}

// settleAs is settle for a birth that a member reported.
func (n *Node) settleAs(text string) error {
	birth, err := parseBirth(text)
	if err != nil {
		return err
	}
	return n.settle(life{birth: birth})
}

// settleReplica records what the log has shown. The loop calls it.
func (n *Node) settleReplica() error {
	birth, rootless := n.replica.Life()
	if known := n.life.Load(); known != nil && (birth == known.birth || birth == (command.BirthID{})) {
		return nil
	}
	return n.settle(life{birth, rootless})
}

// noteLevel keeps builds that cannot apply the level out of the directory. Builds that can
// BirthLevel, and begin clusters at it, write the format of before: at that level the way back to
// them stays open.
func (n *Node) noteLevel() error {
	if n.barred || n.replica.Level() < command.SecretLevel {
		return nil
	}
	n.barred = true
	if err := n.store.BarBefore(); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	return nil
}

func lifeOf(m *machine.Machine) life { return life{m.Birth(), m.Rootless()} }

// openStore opens the directory and counts this start of it.
func (n *Node) openStore() (*storage.Store, error) {
	store, err := storage.Open(storage.Config{
		Dir: n.cfg.DataDir, FS: n.cfg.FS, ClusterID: n.configured(), NodeID: n.id.Load(), NodeName: n.founderName,
		Waited: func() { n.counts.waited.Add(1) }, Logger: n.log,
	})
	if err != nil {
		return nil, err
	}
	n.store = store
	if err := n.beginStart(); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// beginStart durably records that one more process runs on the directory, before any message says
// so.
func (n *Node) beginStart() error {
	noted, err := n.store.Birth()
	if err != nil {
		return err
	}
	birth := command.BirthID(noted)
	if n.cfg.Join != "" && n.cfg.Join != n.configured() && birth != (command.BirthID{}) && n.cfg.Join != birth.String() {
		return fmt.Errorf("node: data directory %s belongs to cluster %s, not %s", n.cfg.DataDir, birth, n.cfg.Join)
	}
	if out, err := n.store.OldCopy(); err != nil {
		return err
	} else if out != "" {
		n.out.Store(&out)
	}
	if n.lastEntry, err = n.store.LastEntry(group); err != nil {
		return err
	}
	if n.starts, err = n.store.BeginStart(n.cfg.Random); err != nil {
		return err
	}
	if n.joins != nil && n.joins.Birth != "" {
		if err := n.settleAs(n.joins.Birth); err != nil {
			return err
		}
	}
	return n.settle(life{birth: birth})
}

// founderName returns the name of the node with this id if the cluster started with it.
func (n *Node) founderName(id uint64) string {
	for _, m := range n.members {
		if m.ID == id {
			return m.Name
		}
	}
	return ""
}

// introduction returns what this node currently says about itself in a handshake.
func (n *Node) introduction() transport.Identity {
	id := n.identity(n.store.InstanceID())
	id.Start, id.LastEntry = n.starts.Count, n.lastEntry
	for _, s := range n.starts.Last {
		id.StartIDs = binary.BigEndian.AppendUint32(id.StartIDs, s)
	}
	if life := n.life.Load(); life != nil {
		id.Birth, id.Rootless = life.birth.String(), life.rootless
	}
	if marks := n.marks.Load(); marks != nil {
		for _, k := range *marks {
			id.Marks = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(id.Marks, k.Index), k.Hash)
		}
	}
	return id
}

func startsOf(id *transport.Identity) storage.Starts {
	s := storage.Starts{Count: id.Start}
	for b := id.StartIDs; len(b) >= 4; b = b[4:] {
		s.Last = append(s.Last, binary.BigEndian.Uint32(b))
	}
	return s
}

func marksOf(id *transport.Identity) (all []machine.Mark) {
	for b := id.Marks; len(b) >= 16; b = b[16:] {
		all = append(all, machine.Mark{Index: binary.BigEndian.Uint64(b), Hash: binary.BigEndian.Uint64(b[8:])})
	}
	return all
}
