package replica

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/lockstep-dev/lockstep/server/lead"
)

const (
	// zoneAfter is how long a leader outside the preferred zone leads before it transfers
	// leadership to a member there, and the time between two attempts. So the zone never turns a
	// bad minute into many elections.
	zoneAfter = lead.Time(30 * time.Second)
	// zoneAfterDisk is the same for a leader that took over because of another's slow disk, which
	// may be in the preferred zone.
	zoneAfterDisk = lead.Time(5 * time.Minute)
)

// zones keeps leadership in the preferred zone, and watches over the zones of the voters.
type zones struct {
	*core
	members *membership
	// at is the earliest time at which leadership may be transferred to the preferred zone, on the
	// clock awake.
	at      lead.Time
	crowded string // the zone that was warned about
}

// leaveFor returns the member to which this leader transfers leadership now, or raft.None: one of
// the preferred zone that is up and not behind, if this leader is elsewhere.
func (z *zones) leaveFor(serving bool) uint64 {
	if z.cfg.LeaderZone == "" || z.cfg.Zone == z.cfg.LeaderZone || !serving || z.awake < z.at {
		return raft.None
	}
	z.at = z.awake + zoneAfter
	to := z.readyIn(z.cfg.LeaderZone)
	if to == raft.None || z.members.change != nil {
		return raft.None
	}
	z.log.Info("moving leadership to the preferred zone", "zone", z.cfg.LeaderZone, "to", fmt.Sprintf("%016x", to))
	return to
}

// readyIn returns the voter in a zone that has everything committed and the longest log; among
// equals, the lowest id.
func (z *zones) readyIn(zone string) (best uint64) {
	var match uint64
	z.raft.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if id == z.cfg.ID || typ == raft.ProgressTypeLearner || z.members.met[id].Zone != zone {
			return
		}
		if !pr.RecentActive || pr.State != tracker.StateReplicate || pr.Match < z.committed {
			return
		}
		if best == raft.None || pr.Match > match || pr.Match == match && id < best {
			best, match = id, pr.Match
		}
	})
	return best
}

// rest keeps a new leader where it is for a while.
func (z *zones) rest() { z.at = max(z.at, z.awake+zoneAfter) }

// note warns once about a zone whose loss would take the quorum with it. The leader calls it
// when it may know more.
func (z *zones) note() {
	var of []string
	for _, id := range z.confState.GetVoters() {
		of = append(of, z.members.met[id].Zone)
	}
	zone, voters := CrowdedZone(of)
	if zone != "" && zone != z.crowded {
		z.log.Warn("the loss of one zone would stop the cluster: move voters to others", "zone", zone, "voters", voters, "of", len(of))
	}
	z.crowded = zone
}

// CrowdedZone returns the zone that has a majority of the voters: without it there is no quorum. It
// returns "" while no voter reports a zone, and for a single voter.
func CrowdedZone(zones []string) (zone string, voters int) {
	count := make(map[string]int)
	for _, z := range zones {
		count[z]++
	}
	// In any order: at most one has a majority.
	for z, n := range count {
		if z != "" && len(zones) > 1 && n > len(zones)/2 {
			return z, n
		}
	}
	return "", 0
}
