package replica

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// A cluster that is new or was restored is young until it has a token floor: it grants nothing. Its
// first leader logs, in this order and each once the one before is applied,
//
//   1. the limits, at the newest feature level that every founder knows, and a birth drawn at
//      random;
//   2. the token floor, once every founder has the birth on its disk and the member table has its
//      directory.
//
// So two groups of founders cannot both begin a history: each would need all of them. At feature
// level 1 there is no birth, and the limits and the floor are logged at once. When the level of
// such a cluster rises, its leader logs a birth that identifies the configuration it grew from; see
// [machine.LateBirth].

const (
	// waitNoted is how long a wait for founders lasts before it is first logged, and waitNotedAgain
	// the interval of logging it after that.
	waitNoted      = lead.Time(time.Second)
	waitNotedAgain = lead.Time(30 * time.Second)
)

// A founding is the leader's progress with the first entries of a young cluster.
type founding struct {
	birthLogged, floorLogged bool
	// birthAt is a log index after the birth; zero: not known yet.
	birthAt    uint64
	clockNoted bool // that the clock cannot provide a floor was logged
	// waits is when the wait for founders began, and noted when it was last logged; zero: not yet.
	waits, noted lead.Time
}

// young reports whether the token floor of a new or restored cluster has not been logged yet.
func (r *Replica) young() bool {
	return r.machine.Counts().NextToken == 0 || r.machine.Recovery().FloorDue
}

// expected lists the voters, except those known not to exist.
func (r *Replica) expected() []uint64 {
	return slices.DeleteFunc(slices.Clone(r.confState.GetVoters()), func(id uint64) bool { return slices.Contains(r.cfg.Missing, id) })
}

// beginLevel returns the feature level that a young cluster begins with, or zero and the voters
// that have not been met yet.
func (r *Replica) beginLevel() (level uint32, unmet []uint64) {
	level = r.cfg.Limits.FeatureLevel
	if r.cfg.AnyLevel {
		return level, nil
	}
	for _, id := range r.expected() {
		m, met := r.members.met[id]
		if !met {
			unmet = append(unmet, id)
		}
		level = min(level, max(m.Level, 1))
	}
	if len(unmet) > 0 {
		level = 0
	}
	return level, unmet
}

// wantsBirth reports whether the birth is to be logged: by the first leader, or as soon as the
// feature level allows it.
func (r *Replica) wantsBirth() bool {
	if r.founding.birthLogged || r.machine.Birth() != (machine.BirthID{}) {
		return false
	}
	if r.machine.Limits().FeatureLevel >= machine.BirthLevel {
		return true
	}
	if !r.young() {
		return false
	}
	level, _ := r.beginLevel()
	return level >= machine.BirthLevel
}

// birthCommands begin a cluster: the limits, if they are not in force, and the birth.
func (r *Replica) birthCommands() (commands []machine.Command) {
	limits := r.machine.Limits()
	if r.young() {
		if !r.machine.Recovery().FloorDue {
			limits = r.cfg.Limits
		}
		level, _ := r.beginLevel()
		// A restored cluster keeps its limits while members are waited for.
		limits = limits.At(max(level, r.machine.Limits().FeatureLevel), r.cfg.Limits)
	}
	if limits != r.machine.Limits() {
		commands = append(commands, machine.SetLimits{Limits: limits})
	}
	birth := r.draw
	if r.machine.Rootless() {
		birth = machine.LateBirth(r.draw, r.cfg.Configured)
	}
	r.log.Info("recording the birth of the cluster", "birth", birth)
	return append(commands, machine.SetBirth{Birth: birth})
}

// wantsFloor reports whether the token floor of a young cluster is to be logged now.
func (r *Replica) wantsFloor() bool {
	f := &r.founding
	if f.floorLogged || !r.young() {
		r.noFloor = ""
		return false
	}
	if r.noFloor = r.awaitFounders(); r.noFloor != "" {
		return false
	}
	r.noFloor = r.clockObstacle()
	return r.noFloor == ""
}

// awaitFounders returns why the floor must wait for the founders or for the birth, or "".
func (r *Replica) awaitFounders() string {
	f := &r.founding
	lacking, what := []uint64(nil), "have not connected"
	if r.machine.Birth() == (machine.BirthID{}) {
		level, unmet := r.beginLevel()
		if level >= machine.BirthLevel {
			return "the birth of the cluster is being logged"
		}
		lacking = unmet
	} else {
		if f.birthAt == 0 {
			f.birthAt = r.applied
		}
		lacking, what = r.withoutBirth(), "do not have the birth of the cluster on disk"
	}
	if len(lacking) == 0 {
		return ""
	}
	names := r.describe(lacking)
	r.noteWait(names, what)
	return fmt.Sprintf("initial members %s yet: %s; start them, or start the others with --initial-missing and the names of those that do not exist", what, names)
}

// withoutBirth lists the expected voters that have not acknowledged the birth, or whose directory
// is missing from the table.
func (r *Replica) withoutBirth() (lacking []uint64) {
	match := make(map[uint64]uint64)
	r.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) { match[id] = pr.Match })
	for _, id := range r.expected() {
		m, logged := r.machine.Member(id)
		if match[id] < r.founding.birthAt || logged && m.Instance == [16]byte{} {
			lacking = append(lacking, id)
		}
	}
	return lacking
}

// describe formats members with their addresses.
func (r *Replica) describe(ids []uint64) string {
	var all []string
	for _, id := range ids {
		m, ok := r.machine.Member(id)
		if i := slices.IndexFunc(r.cfg.Founders, func(f machine.Member) bool { return f.ID == id }); !ok && i >= 0 {
			m, ok = r.cfg.Founders[i], true
		}
		if !ok {
			m = machine.Member{Name: fmt.Sprintf("%016x", id), Address: "address unknown"}
		}
		all = append(all, fmt.Sprintf("%s (%s)", m.Name, m.Address))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// noteWait logs, at intervals, that founders are being waited for.
func (r *Replica) noteWait(names, what string) {
	f := &r.founding
	if f.waits == 0 {
		f.waits = r.now
	}
	if r.now-f.waits < waitNoted || f.noted != 0 && r.now-f.noted < waitNotedAgain {
		return
	}
	f.noted = r.now
	r.log.Warn("new cluster: nothing is granted until every initial member has the birth of the cluster on disk",
		"waiting for", names, "they", what,
		"remedy", "start them, or start the others with --initial-missing and the names of those that do not exist")
}

// floorCommands give a young cluster its first tokens and, at feature level 1, also its limits. A
// restored cluster has the limits of the backup.
func (r *Replica) floorCommands() (commands []machine.Command) {
	floor := r.cfg.TokenFloor
	if floor == 0 {
		floor = tokenFloor(r.wall)
	}
	r.log.Info("first token floor", "floor", uint64(floor), "next token before", uint64(r.machine.Counts().NextToken),
		"restored", r.machine.Recovery().FloorDue)
	if r.machine.Birth() == (machine.BirthID{}) && !r.machine.Recovery().FloorDue {
		level, _ := r.beginLevel()
		commands = append(commands, machine.SetLimits{Limits: r.cfg.Limits.At(level, r.cfg.Limits)})
	}
	return append(commands, machine.SetTokenFloor{Floor: floor})
}

// clockObstacle returns why the wall clock cannot provide the first token floor, or "". A clock
// that cannot be right would produce tokens that an earlier life of the cluster may have issued, so
// nothing is granted until it is fixed.
func (r *Replica) clockObstacle() string {
	what := r.clockFault()
	if what == "" || r.cfg.TokenFloor != 0 {
		r.founding.clockNoted = false
		return ""
	}
	why := fmt.Sprintf("the wall clock says %s, which is %s", time.UnixMilli(int64(r.wall)).UTC().Format(time.RFC3339), what)
	if !r.founding.clockNoted {
		r.founding.clockNoted = true
		r.log.Error("no token floor: nothing is granted", "reason", why)
	}
	return why
}

// clockFault returns why the wall clock cannot be right, or "".
func (r *Replica) clockFault() string {
	switch {
	case r.wall < r.machine.Recovery().Stamp:
		return "before the backup was taken"
	case tokenFloor(max(r.wall, tokenEpoch*1000)) < r.machine.Counts().NextToken:
		return "earlier than the tokens already issued"
	case r.wall < r.cfg.Built || r.wall < tokenEpoch*1000:
		return "before this program was built"
	case r.wall >= tokenEnd*1000:
		return "beyond the range of tokens"
	}
	return ""
}

// Birth returns the cluster's birth as far as this replica has applied the log, zero if it has none
// yet.
func (r *Replica) Birth() machine.BirthID { return r.machine.Birth() }

// Recovery returns what a restored cluster waits for; see [machine.Recovery].
func (r *Replica) Recovery() machine.Recovery { return r.machine.Recovery() }

// Life is like Birth, and also reports whether the cluster began without one; see
// [machine.Machine.Rootless].
func (r *Replica) Life() (birth machine.BirthID, rootless bool) {
	return r.machine.Birth(), r.machine.Rootless()
}

// Marks returns the marks by which this replica's state can be compared; see
// [machine.Machine.Marks].
func (r *Replica) Marks() []machine.Mark { return r.machine.Marks() }
