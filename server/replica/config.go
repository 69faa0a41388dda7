package replica

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// Recovered is what the shell found on its disk. Every new node of a cluster starts from the same
// one: a snapshot with index 1 and term 1 whose ConfState lists all voters, no entries, and an
// empty machine.
type Recovered struct {
	HardState *raftpb.HardState // nil: none has been written yet
	Snapshot  *raftpb.SnapshotMetadata
	Entries   []*raftpb.Entry // after the snapshot, without a gap; older ones are ignored
	Machine   *machine.Machine
}

// A Config configures New. ID, Recovered and Rand have no default.
type Config struct {
	ID    uint64 // of this node; not zero
	Group uint32 // for logging only
	Recovered

	// TickEvery is the unit of Raft's timers. Default: 50 ms.
	TickEvery time.Duration
	// ElectionTicks is how long a follower waits without hearing from the leader before it
	// campaigns; up to as many ticks again are added at random. Default: 12.
	ElectionTicks int
	// HeartbeatTicks is the interval of a leader's heartbeats. Default: 2.
	HeartbeatTicks int

	// Grace is added to every lease, because a client may notice the end of its lease that late.
	// Default: 500 ms.
	Grace time.Duration
	// RoundEvery is the shortest interval between quorum rounds that serve only held keepalives.
	// Default: 30 ms.
	RoundEvery time.Duration
	// RoundIdle is the longest interval between rounds while there are sessions. Default: 250 ms.
	RoundIdle time.Duration

	// BatchCommands, BatchBytes and BatchAge close a batch even though an entry is in flight, if
	// InFlight allows another. Defaults: 512, 256 KiB, 1 ms.
	BatchCommands int
	BatchBytes    int
	BatchAge      time.Duration
	// InFlight is the maximum number of this node's entries that are proposed and not yet applied.
	// Default: 1.
	InFlight int
	// QueueCommands bounds the Acquire, Open and Revoke requests waiting for a batch; further ones
	// are refused as Overloaded. Other requests have their own bound, eight times as high. Default:
	// 8,192.
	QueueCommands int

	// StallTransfer and StallMute are the ages of the oldest write in flight at which a leader
	// transfers leadership, and stops sending, if a majority of the others was clearly faster.
	// StallExit is the age at which the node must exit. Defaults: 400 ms, 1 s, 10 s.
	StallTransfer time.Duration
	StallMute     time.Duration
	StallExit     time.Duration

	// SnapshotEntries and SnapshotBytes are about how much log is applied between two snapshots.
	// Voters take their snapshots at different points of the log, and those with higher ids after
	// fewer bytes, down to half of SnapshotBytes. SnapshotTail is how many bytes of older log stay
	// in memory for followers that lag. Defaults: 100,000, 32 MiB, 16 MiB.
	SnapshotEntries uint64
	SnapshotBytes   uint64
	SnapshotTail    uint64
	// SnapshotLag bounds the older log, data and overhead, that a leader keeps in memory for a
	// follower that is catching up. A follower that lags further behind gets the newest snapshot
	// again. Default: 256 MiB.
	SnapshotLag uint64
	// SnapshotPace is the time between two parts of a snapshot, each of about 64 KiB; after a larger
	// part it is that much longer. Default: 5 ms.
	SnapshotPace time.Duration

	// Founders are the members of Recovered's first ConfState, as the first leader logs them.
	// Default: none; then none are logged, and the membership cannot change.
	Founders []command.Member

	// Configured is the id of the configuration that the cluster began with, the same on all nodes.
	// A cluster that began at a feature level without births gets a birth derived from it. Default:
	// none.
	Configured string

	// ForgetDue says that the note of [ForgetLater] or ForgetNow is there. Default: it is not.
	ForgetDue bool

	// AnyLevel says that every voter knows the feature level of Limits, so that a new cluster does
	// not wait until all have been met. It is for tests. Default: it waits.
	AnyLevel bool

	// Missing are founders that are known not to exist: the first token floor does not wait for
	// them. Default: none.
	Missing []uint64

	// CheckEvery is the number of entries between two checks of the state's hash. Default: 4,096.
	CheckEvery uint64

	// Limits are what the first leader of a new cluster logs. Default: command.DefaultLimits.
	Limits command.Limits
	// Built is when the binary was built. A token floor is refused while the wall clock is earlier.
	Built command.WallMillis
	// TokenFloor, if not zero, replaces the first token floor of a new or restored cluster.
	TokenFloor command.Token

	// Zone is where this node is, and LeaderZone where the leader should be, if a member there is
	// up and not behind. Default: none, and anywhere.
	Zone, LeaderZone string
	// SessionsPerAddress bounds the sessions of one client address while this replica leads.
	// Default: 60,000.
	SessionsPerAddress int

	// Stopwatch reads a clock that measures how long reads take. It only decides how many of them a
	// turn answers. Default: none; estimates are used instead, so that a run is a function of its
	// inputs.
	Stopwatch func() time.Duration

	// Rand is read only in New: it seeds the jitter of leases, and provides the birth that this
	// replica would log.
	Rand io.Reader
	// Logger receives the log, Raft's at level Debug. Default: discard.
	Logger *slog.Logger
}

// DefaultSessionsPerAddress leaves room for 50,000 sessions behind one NAT, or of one load test,
// and for others as well: it is a third of all sessions that a cluster has by default.
const DefaultSessionsPerAddress = 60_000

func orDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

func (c Config) withDefaults() Config {
	orDefault(&c.TickEvery, 50*time.Millisecond)
	orDefault(&c.ElectionTicks, 12)
	orDefault(&c.HeartbeatTicks, 2)
	orDefault(&c.Grace, 500*time.Millisecond)
	orDefault(&c.RoundEvery, 30*time.Millisecond)
	orDefault(&c.RoundIdle, 250*time.Millisecond)
	orDefault(&c.BatchCommands, 512)
	orDefault(&c.BatchBytes, 256<<10)
	orDefault(&c.BatchAge, time.Millisecond)
	orDefault(&c.InFlight, 1)
	orDefault(&c.QueueCommands, 8_192)
	orDefault(&c.StallTransfer, 400*time.Millisecond)
	orDefault(&c.StallMute, time.Second)
	orDefault(&c.StallExit, 10*time.Second)
	orDefault(&c.SnapshotEntries, 100_000)
	orDefault(&c.SnapshotBytes, 32<<20)
	orDefault(&c.SnapshotTail, 16<<20)
	orDefault(&c.SnapshotLag, 256<<20)
	orDefault(&c.SnapshotPace, 5*time.Millisecond)
	orDefault(&c.CheckEvery, 4_096)
	orDefault(&c.SessionsPerAddress, DefaultSessionsPerAddress)
	orDefault(&c.Limits, command.DefaultLimits())
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// maxStep is how much time the healthy clock credits in one turn: two periods of the loop.
func (c *Config) maxStep() time.Duration { return 2 * c.TickEvery }

// ofLead returns the part that the Lead needs.
func (c *Config) ofLead(log *slog.Logger) lead.Config {
	return lead.Config{
		ID: c.ID, Machine: c.Machine, Applied: c.Snapshot.GetIndex(),
		Grace: c.Grace, MaxStep: c.maxStep(), RoundEvery: c.RoundEvery, RoundIdle: c.RoundIdle,
		BatchCommands: c.BatchCommands, BatchBytes: c.BatchBytes, BatchAge: c.BatchAge, InFlight: c.InFlight,
		QueueCommands: c.QueueCommands, SessionsPerAddress: c.SessionsPerAddress, CheckEvery: c.CheckEvery,
		Stopwatch: c.Stopwatch, Rand: c.Rand, Logger: log,
	}
}

func (c *Config) validate() error {
	switch {
	case c.ID == 0:
		return errors.New("replica: ID is zero")
	case c.Rand == nil:
		return errors.New("replica: Rand is nil")
	case c.Machine == nil:
		return errors.New("replica: Recovered.Machine is nil")
	case c.Snapshot.GetIndex() == 0:
		return errors.New("replica: Recovered.Snapshot has index 0")
	case c.ElectionTicks <= c.HeartbeatTicks:
		return fmt.Errorf("replica: ElectionTicks %d must exceed HeartbeatTicks %d", c.ElectionTicks, c.HeartbeatTicks)
	case c.SessionsPerAddress < 1:
		return fmt.Errorf("replica: SessionsPerAddress %d is below 1", c.SessionsPerAddress)
	case c.InFlight < 1:
		return fmt.Errorf("replica: InFlight %d is below 1", c.InFlight)
	}
	if err := c.Limits.Check(); err != nil {
		return fmt.Errorf("replica: %w", err) // the log would refuse them
	}
	return nil
}
