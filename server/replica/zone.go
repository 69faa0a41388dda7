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

// watchZone transfers leadership to a member of the preferred zone that is up and not behind, if
// this leader is elsewhere.
func (r *Replica) watchZone() {
	if r.cfg.LeaderZone == "" || r.cfg.Zone == r.cfg.LeaderZone || !r.lead.Serving() || r.awake < r.zoneAt {
		return
	}
	r.zoneAt = r.awake + zoneAfter
	if to := r.readyIn(r.cfg.LeaderZone); to != raft.None && r.members.change == nil {
		r.log.Info("moving leadership to the preferred zone", "zone", r.cfg.LeaderZone, "to", fmt.Sprintf("%016x", to))
		r.handOver(to)
	}
}

// readyIn returns the voter in a zone that has everything committed and the longest log; among
// equals, the lowest id.
func (r *Replica) readyIn(zone string) (best uint64) {
	var match uint64
	r.raft.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if id == r.cfg.ID || typ == raft.ProgressTypeLearner || r.members.met[id].Zone != zone {
			return
		}
		if !pr.RecentActive || pr.State != tracker.StateReplicate || pr.Match < r.committed {
			return
		}
		if best == raft.None || pr.Match > match || pr.Match == match && id < best {
			best, match = id, pr.Match
		}
	})
	return best
}

// restInZone keeps a new leader where it is for a while.
func (r *Replica) restInZone() { r.zoneAt = max(r.zoneAt, r.awake+zoneAfter) }

// noteZones warns once about a zone whose loss would take the quorum with it. The leader calls it
// when it may know more.
func (r *Replica) noteZones() {
	var zones []string
	for _, id := range r.confState.GetVoters() {
		zones = append(zones, r.members.met[id].Zone)
	}
	zone, voters := CrowdedZone(zones)
	if zone != "" && zone != r.crowded {
		r.log.Warn("the loss of one zone would stop the cluster: move voters to others", "zone", zone, "voters", voters, "of", len(zones))
	}
	r.crowded = zone
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
