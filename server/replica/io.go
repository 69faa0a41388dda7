package replica

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// An Input is something that reached the replica from outside: one of the types below, by value.
type Input interface{ input() }

type (
	// Asked is a request of a client.
	Asked struct{ lead.Request }

	// Message is a Raft message from a peer, except MsgSnap, which comes as SnapshotReceived.
	Message struct{ *raftpb.Message }

	// Persisted reports that the oldest Appends of those handed out and not yet reported are
	// durable.
	Persisted struct{ Appends int }

	// Backlog reports that requests are waiting in the shell that have not been given to Step yet,
	// and when the oldest was received. It holds until the next Turn has returned.
	Backlog struct{ Oldest lead.Time }

	// SnapshotWritten reports that the snapshot with this index is durable.
	SnapshotWritten struct{ Index uint64 }

	// SnapshotFailed reports that the snapshot with this index was abandoned. Another is made
	// later.
	SnapshotFailed struct{ Index uint64 }

	// SnapshotWanted asks for a snapshot that includes the entry at Index, or everything applied so
	// far if Index is 0. None is made if the newest one, or the one in progress, includes it.
	SnapshotWanted struct{ Index uint64 }

	// SnapshotReceived is a MsgSnap from a peer whose file is durable here, with the state in it.
	SnapshotReceived struct {
		Message *raftpb.Message
		Machine *machine.Machine
	}

	// SnapshotSent reports how a MsgSnap to a peer ended. Every MsgSnap is reported once.
	SnapshotSent struct {
		To uint64
		OK bool
		// Unreadable is the index of a snapshot that was not sent because its file is gone or
		// damaged; 0: the file is intact.
		Unreadable uint64
	}

	// Unreachable reports that messages to a peer were dropped.
	Unreachable struct{ ID uint64 }

	// HandOver asks a leader to transfer its leadership to the member To, or if zero to the one
	// with the longest log. A replica that does not lead ignores it. It may fail: ask again while
	// Status says leader.
	HandOver struct{ To uint64 }

	// Campaign makes a follower campaign now. It is for tests and tools.
	Campaign struct{}
)

func (Asked) input()            {}
func (Message) input()          {}
func (Persisted) input()        {}
func (Backlog) input()          {}
func (SnapshotWritten) input()  {}
func (SnapshotFailed) input()   {}
func (SnapshotWanted) input()   {}
func (SnapshotReceived) input() {}
func (SnapshotSent) input()     {}
func (Unreachable) input()      {}
func (HandOver) input()         {}
func (Campaign) input()         {}

// An Output is what the shell has to carry out after a turn. Messages may be sent before Appends
// are durable: messages that must wait for them come out of a later turn. The messages and entries
// are immutable and may be read by other goroutines.
type Output struct {
	// Messages go to peers; those to one peer in this order. They may be lost.
	Messages []*raftpb.Message
	// Appends are MsgStorageAppend: make each durable, in this order, and report it with Persisted.
	// The shell ignores their Responses.
	Appends []*raftpb.Message
	// Replies go to clients; those of one stream in this order.
	Replies []lead.Reply
	// Events are the history events applied in this turn.
	Events []command.Event
	// Applied are the entries applied in this turn, for checkers. They do not include the effect of
	// an installed snapshot.
	Applied []Applied
	// Snapshot is the next part of a snapshot to write, or nil.
	Snapshot *SnapshotPart
	// CompactTo, if not zero, says that log entries up to this index are in a durable snapshot.
	CompactTo uint64
	// Forget says what is to be done about secrets that the log and the kept snapshots may contain.
	Forget Forget
	// Exit, if not empty, says why the process must exit now.
	Exit string
	// Stalled says that Exit is due to a write that takes too long. A shell that knows that it is
	// waiting for something other than the disk may continue.
	Stalled bool
	// Wake is when Turn must be called again at the latest.
	Wake lead.Time
}

// A Forget is about secrets from before the feature level at which they are stored as hashes.
type Forget uint8

// ForgetLater: the log or a kept snapshot has some; note it durably before Appends, for
// Config.ForgetDue. ForgetNow: note it as well; once Appends and CompactTo are carried out no file
// needs them: take them out of the files, and then remove the note.
const (
	ForgetLater Forget = iota + 1
	ForgetNow
)

// Applied is one applied entry and its results.
type Applied struct {
	Index, Term uint64
	Entry       *command.Entry // nil for Raft's own entries
	Output      command.Output
}

// A SnapshotPart is a piece of a snapshot. Parts of one snapshot come in order; a part with another
// Index means that the unfinished one was abandoned. Once the Last one is durable, report
// SnapshotWritten.
type SnapshotPart struct {
	Metadata *raftpb.SnapshotMetadata
	First    bool
	Last     bool
	Chunk    []byte
}
