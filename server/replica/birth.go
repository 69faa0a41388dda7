package replica

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
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
// [command.LateBirth].

const (
	// waitNoted is how long a wait for founders lasts before it is first logged, and waitNotedAgain
	// the interval of logging it after that.
	waitNoted      = lead.Time(time.Second)
	waitNotedAgain = lead.Time(30 * time.Second)
)

// A founding begins a young cluster.
type founding struct {
	*core
	members *membership
	draw    command.BirthID // the birth of the cluster, if this replica is its first leader
	noFloor string          // why there is no token floor yet, or ""
	progress
}

// A progress is a leader's with the first entries of a young cluster. It ends with the leadership.
type progress struct {
	birthLogged, floorLogged bool
	// birthAt is a log index after the birth; zero: not known yet.
	birthAt    uint64
	clockNoted bool // that the clock cannot provide a floor was logged
	// waits is when the wait for founders began, and noted when it was last logged; zero: not yet.
	waits, noted lead.Time
}

// expected lists the voters, except those known not to exist.
func (f *founding) expected() []uint64 {
	return slices.DeleteFunc(slices.Clone(f.confState.GetVoters()), func(id uint64) bool { return slices.Contains(f.cfg.Missing, id) })
}

// beginLevel returns the feature level that a young cluster begins with, or zero and the voters
// that have not been met yet.
func (f *founding) beginLevel() (level uint32, unmet []uint64) {
	level = f.cfg.Limits.FeatureLevel
	if f.cfg.AnyLevel {
		return level, nil
	}
	for _, id := range f.expected() {
		m, met := f.members.met[id]
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
func (f *founding) wantsBirth() bool {
	if f.birthLogged || f.machine.Birth() != (command.BirthID{}) {
		return false
	}
	if f.machine.Limits().FeatureLevel >= command.BirthLevel {
		return true
	}
	if !f.young() {
		return false
	}
	level, _ := f.beginLevel()
	return level >= command.BirthLevel
}

// birthCommands begin a cluster: the limits, if they are not in force, and the birth.
func (f *founding) birthCommands() (commands []command.Command) {
	limits := f.machine.Limits()
	if f.young() {
		if !f.machine.Recovery().FloorDue {
			limits = f.cfg.Limits
		}
		level, _ := f.beginLevel()
		// A restored cluster keeps its limits while members are waited for.
		limits = limits.At(max(level, f.machine.Limits().FeatureLevel), f.cfg.Limits)
	}
	if limits != f.machine.Limits() {
		commands = append(commands, command.SetLimits{Limits: limits})
	}
	birth := f.draw
	if f.machine.Rootless() {
		birth = command.LateBirth(f.draw, f.cfg.Configured)
	}
	f.log.Info("recording the birth of the cluster", "birth", birth)
	return append(commands, command.SetBirth{Birth: birth})
}

// wantsFloor reports whether the token floor of a young cluster is to be logged now.
func (f *founding) wantsFloor() bool {
	if f.floorLogged || !f.young() {
		f.noFloor = ""
		return false
	}
	if f.noFloor = f.awaitFounders(); f.noFloor != "" {
		return false
	}
	f.noFloor = f.clockObstacle()
	return f.noFloor == ""
}

// awaitFounders returns why the floor must wait for the founders or for the birth, or "".
func (f *founding) awaitFounders() string {
	lacking, what := []uint64(nil), "have not connected"
	if f.machine.Birth() == (command.BirthID{}) {
		level, unmet := f.beginLevel()
		if level >= command.BirthLevel {
			return "the birth of the cluster is being logged"
		}
		lacking = unmet
	} else {
		if f.birthAt == 0 {
			f.birthAt = f.applied
		}
		lacking, what = f.withoutBirth(), "do not have the birth of the cluster on disk"
	}
	if len(lacking) == 0 {
		return ""
	}
	names := f.members.describe(lacking)
	f.noteWait(names, what)
	return fmt.Sprintf("initial members %s yet: %s; start them, or start the others with --initial-missing and the names of those that do not exist", what, names)
}

// withoutBirth lists the expected voters that have not acknowledged the birth, or whose directory
// is missing from the table.
func (f *founding) withoutBirth() (lacking []uint64) {
	match := make(map[uint64]uint64)
	f.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) { match[id] = pr.Match })
	for _, id := range f.expected() {
		m, logged := f.machine.Member(id)
		if match[id] < f.birthAt || logged && m.Instance == [16]byte{} {
			lacking = append(lacking, id)
		}
	}
	return lacking
}

// noteWait logs, at intervals, that founders are being waited for.
func (f *founding) noteWait(names, what string) {
	if f.waits == 0 {
		f.waits = f.now
	}
	if f.now-f.waits < waitNoted || f.noted != 0 && f.now-f.noted < waitNotedAgain {
		return
	}
	f.noted = f.now
	f.log.Warn("new cluster: nothing is granted until every initial member has the birth of the cluster on disk",
		"waiting for", names, "they", what,
		"remedy", "start them, or start the others with --initial-missing and the names of those that do not exist")
}

// floorCommands give a young cluster its first tokens and, at feature level 1, also its limits. A
// restored cluster has the limits of the backup.
func (f *founding) floorCommands() (commands []command.Command) {
	floor := f.cfg.TokenFloor
	if floor == 0 {
		floor = tokenFloor(f.wall)
	}
	f.log.Info("first token floor", "floor", uint64(floor), "next token before", uint64(f.machine.Counts().NextToken),
		"restored", f.machine.Recovery().FloorDue)
	if f.machine.Birth() == (command.BirthID{}) && !f.machine.Recovery().FloorDue {
		level, _ := f.beginLevel()
		commands = append(commands, command.SetLimits{Limits: f.cfg.Limits.At(level, f.cfg.Limits)})
	}
	return append(commands, command.SetTokenFloor{Floor: floor})
}

// clockObstacle returns why the wall clock cannot provide the first token floor, or "". A clock
// that cannot be right would produce tokens that an earlier life of the cluster may have issued, so
// nothing is granted until it is fixed.
func (f *founding) clockObstacle() string {
	what := f.clockFault()
	if what == "" || f.cfg.TokenFloor != 0 {
		f.clockNoted = false
		return ""
	}
	why := fmt.Sprintf("the wall clock says %s, which is %s", time.UnixMilli(int64(f.wall)).UTC().Format(time.RFC3339), what)
	if !f.clockNoted {
		f.clockNoted = true
		f.log.Error("no token floor: nothing is granted", "reason", why)
	}
	return why
}

// clockFault returns why the wall clock cannot be right, or "".
func (f *founding) clockFault() string {
	switch {
	case f.wall < f.machine.Recovery().Stamp:
		return "before the backup was taken"
	case tokenFloor(max(f.wall, tokenEpoch*1000)) < f.machine.Counts().NextToken:
		return "earlier than the tokens already issued"
	case f.wall < f.cfg.Built || f.wall < tokenEpoch*1000:
		return "before this program was built"
	case f.wall >= tokenEnd*1000:
		return "beyond the range of tokens"
	}
	return ""
}

// deposed forgets what only a leader knows.
func (f *founding) deposed() { f.noFloor, f.progress = "", progress{} }
