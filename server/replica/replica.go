package replica

import (
	"fmt"
	"io"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

const (
	// maxMessage bounds the entries of one message to a peer: a slow link must not starve the
	// heartbeats that confirm rounds.
	maxMessage = 128 << 10
	// maxPipeline and maxPipelineBytes bound what is sent to a peer before it answers.
	maxPipeline      = 64
	maxPipelineBytes = 1 << 20
	// maxUncommitted bounds the log that accumulates at a leader without a quorum.
	maxUncommitted = 8 << 20
	// maxTicks bounds the ticks of one turn. A process that was paused must read what its peers
	// sent meanwhile before it decides that they are gone.
	maxTicks = 2
)

// A Replica is one member of a group. Only one goroutine may use it at a time.
type Replica struct {
	*core
	lead    *lead.Lead // what this replica does for clients when it leads
	views   views      // of its peers; empty unless it leads
	members membership

	founding founding
	zones    zones

	writes  writes
	leaving bool // leadership is being transferred because of the disk
	// mayTransfer is the earliest time at which leadership may be transferred because of the disk,
	// on the clock awake.
	mayTransfer lead.Time
	incoming    []SnapshotReceived
	snaps       snapshots

	lastTick lead.Time
	started  bool
	backlog  lead.Time // receive time of the oldest request held by the shell; zero when there is none

	disproportionate uint64 // number of messages dropped as such

	out Output // of the current turn
}

// New makes a replica from what was recovered. The error says which part of the configuration is
// wrong.
func New(cfg Config) (*Replica, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &core{
		cfg: cfg, log: cfg.Logger.With("group", cfg.Group), disk: newRaftStorage(),
		machine: cfg.Machine, applied: cfg.Snapshot.GetIndex(), confState: cfg.Snapshot.GetConfState(),
	}
	r := &Replica{core: c, members: membership{core: c}, snaps: snapshots{core: c, index: c.applied}}
	r.founding = founding{core: c, members: &r.members}
	r.zones = zones{core: c, members: &r.members}
	var err error
	if r.lead, err = lead.New(cfg.ofLead(r.log), group{r}); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(cfg.Rand, r.founding.draw[:]); err != nil {
		return nil, fmt.Errorf("replica: reading randomness: %w", err)
	}
	if err := r.recoverLog(&cfg.Recovered); err != nil {
		return nil, err
	}
	r.raft, err = raft.NewRawNode(r.raftConfig())
	if err != nil {
		return nil, fmt.Errorf("replica: raft: %w", err)
	}
	if cfg.ForgetDue && r.level() >= command.SecretLevel {
		r.snaps.owed, r.snaps.owedFrom = keptSnapshots, r.applied+1
	}
	return r, nil
}

// recoverLog fills the log in memory.
func (r *Replica) recoverLog(rec *Recovered) error {
	if err := r.disk.ApplySnapshot(&raftpb.Snapshot{Metadata: rec.Snapshot}); err != nil {
		return fmt.Errorf("replica: recovered snapshot: %w", err)
	}
	entries := rec.Entries
	for len(entries) > 0 && entries[0].GetIndex() <= rec.Snapshot.GetIndex() {
		entries = entries[1:]
	}
	if len(entries) > 0 && entries[0].GetIndex() != rec.Snapshot.GetIndex()+1 {
		return fmt.Errorf("replica: recovered log starts at %d, after a snapshot at %d", entries[0].GetIndex(), rec.Snapshot.GetIndex())
	}
	if err := r.disk.Append(entries); err != nil {
		return fmt.Errorf("replica: recovered log: %w", err)
	}
	hard := rec.HardState
	if raft.IsEmptyHardState(hard) {
		hard = &raftpb.HardState{Term: new(rec.Snapshot.GetTerm()), Vote: new(uint64(0)), Commit: new(rec.Snapshot.GetIndex())}
	}
	last, _ := r.disk.LastIndex() // never returns an error
	// A snapshot can become durable before the record that its last entry is committed.
	commit := max(hard.GetCommit(), rec.Snapshot.GetIndex())
	if commit > last {
		return fmt.Errorf("replica: entry %d was committed, the recovered log ends at %d", commit, last)
	}
	if hard.GetTerm() > lastTerm {
		return fmt.Errorf("replica: the recovered log is in term %d, which leaves too few terms for elections: it was set by a forged or damaged message", hard.GetTerm())
	}
	r.term, r.committed = hard.GetTerm(), commit
	r.writes.term, r.writes.vote = hard.GetTerm(), hard.GetVote()
	return r.disk.SetHardState(&raftpb.HardState{Term: new(r.term), Vote: new(hard.GetVote()), Commit: new(commit)})
}

func (r *Replica) raftConfig() *raft.Config {
	return &raft.Config{
		ID:                        r.cfg.ID,
		ElectionTick:              r.cfg.ElectionTicks,
		HeartbeatTick:             r.cfg.HeartbeatTicks,
		Storage:                   r.disk,
		Applied:                   r.applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             maxMessage,
		MaxCommittedSizePerReady:  maxPipelineBytes,
		MaxUncommittedEntriesSize: maxUncommitted,
		MaxInflightMsgs:           maxPipeline,
		MaxInflightBytes:          maxPipelineBytes,
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		Logger:                    raftLogger{r.log},
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
	}
}

// Step takes one input. Its effects come out of the next Turn.
func (r *Replica) Step(in Input) {
	switch in := in.(type) {
	case Asked:
		r.lead.Request(in.Request)
	case Message:
		r.receive(in.Message)
	case Persisted:
		r.persisted(in.Appends)
	case Backlog:
		r.backlog = in.Oldest
	case SnapshotWritten:
		r.snapshotWritten(in.Index)
	case SnapshotWanted:
		r.snaps.want(in.Index)
	case SnapshotFailed:
		r.snaps.failed(in.Index)
	case SnapshotReceived:
		if r.proportionate(in.Message) {
			r.incoming = append(r.incoming, in)
			r.step(in.Message)
		}
	case SnapshotSent:
		r.snapshotSent(in)
	case Unreachable:
		r.raft.ReportUnreachable(in.ID)
	case Met:
		r.meet(in)
	case HandOver:
		r.handOver(in.To)
	case Campaign:
		if err := r.raft.Campaign(); err != nil {
			r.log.Debug("campaign refused", "err", err)
		}
	default:
		panic(fmt.Sprintf("replica: unknown input %T", in))
	}
}

// receive handles a message from a peer. A MsgSnap must bring its state with it. What a non-leader
// might forward is dropped: proposals and rounds belong to the leader that made them.
func (r *Replica) receive(m *raftpb.Message) {
	if !r.proportionate(m) {
		return
	}
	switch m.GetType() {
	case raftpb.MsgSnap:
		panic(fmt.Sprintf("replica: MsgSnap %d from %x came as Message", m.GetSnapshot().GetMetadata().GetIndex(), m.GetFrom()))
	case raftpb.MsgProp, raftpb.MsgReadIndex:
		if mutantForwarded && m.GetType() == raftpb.MsgReadIndex {
			r.step(m)
			return
		}
		r.log.Debug("forwarded message dropped", "type", m.GetType(), "from", m.GetFrom())
	default:
		if m.GetType() == raftpb.MsgTimeoutNow {
			r.succeed(m)
		}
		r.views.hear(m)
		if r.lead.Term() != 0 {
			r.members.hears(m.GetFrom())
		}
		if !r.empty(m) {
			r.step(m)
		}
	}
}

// step gives Raft a message. Its errors mean that the message is obsolete.
func (r *Replica) step(m *raftpb.Message) {
	if err := r.raft.Step(m); err != nil {
		r.log.Debug("raft message dropped", "type", m.GetType(), "from", m.GetFrom(), "err", err)
	}
}

// Turn does what the inputs since the last turn and the time require. now must not fall from turn
// to turn; wall is the wall clock, used only for display and for the first token floor.
func (r *Replica) Turn(now lead.Time, wall command.WallMillis) Output {
	r.begin(now, wall)
	r.drain()
	r.tick()
	r.watchDisk()
	if to := r.zones.leaveFor(r.lead.Serving()); to != raft.None {
		r.handOver(to)
	}
	r.drain()
	r.lead.Serve(r.backlog)
	r.drain()
	r.lead.Finish()
	if part := r.snaps.capturePart(r.writes.installing()); part != nil {
		r.out.Snapshot = part
	}
	r.out.Wake, r.out.Replies = r.wake(), r.lead.Replies()
	r.backlog, r.incoming = 0, nil // Raft has accepted what arrived, or never will
	out := r.out
	r.out = Output{}
	return out
}

func (r *Replica) begin(now lead.Time, wall command.WallMillis) {
	if now < r.now {
		panic(fmt.Sprintf("replica: time fell from %v to %v", time.Duration(r.now), time.Duration(now)))
	}
	if !r.started {
		r.started, r.lastTick, r.now = true, now, now
	}
	r.awake += min(now-r.now, lead.Time(r.cfg.maxStep()))
	r.now, r.wall = now, wall
	r.lead.Begin(now, wall)
}

// tick gives Raft the ticks that passed, up to a bound; those beyond it are dropped.
func (r *Replica) tick() {
	every := lead.Time(r.cfg.TickEvery)
	due := (r.now - r.lastTick) / every
	r.lastTick += due * every
	if due > 0 {
		r.views.watch(r.core)
	}
	if r.waitsForDisk() {
		return
	}
	for range min(due, maxTicks) {
		r.raft.Tick()
	}
}

// wake returns when the next turn is due if nothing arrives.
func (r *Replica) wake() lead.Time {
	wake := r.lastTick + lead.Time(r.cfg.TickEvery)
	if r.snaps.capture != nil {
		wake = min(wake, r.snaps.next)
	}
	return max(r.lead.Wake(wake), r.now)
}
