package replica

import (
	"log/slog"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// A core is what the parts of a replica share. Only the replica itself changes it.
type core struct {
	cfg  Config
	log  *slog.Logger
	raft *raft.RawNode
	disk *raftStorage // the log as handed out for writing, without its oldest part

	machine   *machine.Machine
	applied   uint64
	confState *raftpb.ConfState

	role      Role
	term      uint64
	leader    uint64
	committed uint64

	now   lead.Time
	awake lead.Time // like now, but without the gaps in which this process did not run
	wall  command.WallMillis
}

// level returns the cluster's feature level as far as this replica has applied the log.
func (c *core) level() uint32 { return c.machine.Limits().FeatureLevel }

// young reports whether the token floor of a new or restored cluster has not been logged yet.
func (c *core) young() bool {
	return c.machine.Counts().NextToken == 0 || c.machine.Recovery().FloorDue
}

func (c *core) isVoter(id uint64) bool   { return slices.Contains(c.confState.GetVoters(), id) }
func (c *core) isLearner(id uint64) bool { return slices.Contains(c.confState.GetLearners(), id) }

func (c *core) memberIDs() []uint64 {
	return append(slices.Clone(c.confState.GetVoters()), c.confState.GetLearners()...)
}

// rank returns the number of voters, at least one, and how many of them come before this one.
func (c *core) rank() (before, all uint64) {
	for _, id := range c.confState.GetVoters() {
		all++
		if id < c.cfg.ID {
			before++
		}
	}
	return before, max(1, all)
}
