package replica

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/machine"
)

// An Input is something that reached the replica from outside: one of the types below
// or a Request, by value.
type Input interface{ input() }

type (
	// Message is a Raft message of a peer, but for MsgSnap, which comes as SnapshotReceived.
	Message struct{ *raftpb.Message }

	// Persisted tells that the oldest Appends of those handed out and not yet reported are durable.
	Persisted struct{ Appends int }

	// Backlog tells that requests wait in the shell that it has not given to Step yet, and
	// when the oldest was received. It holds until the next Turn has returned.
	Backlog struct{ Oldest Time }

	// SnapshotWritten tells that the snapshot with this index is durable.
	SnapshotWritten struct{ Index uint64 }

	// SnapshotFailed tells that the snapshot with this index was given up. Another is made later.
	SnapshotFailed struct{ Index uint64 }

	// SnapshotWanted asks for a snapshot of everything that is applied now. None is made if the newest one has it.
	SnapshotWanted struct{}

	// SnapshotReceived is a MsgSnap of a peer whose file is durable here, and the state in it.
	SnapshotReceived struct {
		Message *raftpb.Message
		Machine *machine.Machine
	}

	// SnapshotSent tells how a MsgSnap to a peer ended. Every MsgSnap is reported once.
	SnapshotSent struct {
		To uint64
		OK bool
		// Unreadable is the index of a snapshot whose file is gone or damaged, which is why it was not sent; 0: it is well.
		Unreadable uint64
	}

	// Unreachable tells that messages to a peer were dropped.
	Unreachable struct{ ID uint64 }

	// HandOver asks a leader to give its leadership to the member To, or with zero to the one with the
	// longest log. A replica that does not lead ignores it. It may fail: ask again while Status says leader.
	HandOver struct{ To uint64 }

	// Campaign makes a follower stand for election now. For tests and tools.
	Campaign struct{}
)

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
func (Request) input()          {}

// An Output is what the shell has to carry out after a turn. Messages may be sent before
// Appends are durable: what must wait for them comes out of a later turn. The messages and entries
// are immutable and may be read by other goroutines.
type Output struct {
	// Messages go to peers; those to one peer in this order. They may be lost.
	Messages []*raftpb.Message
	// Appends are MsgStorageAppend: make each durable, in this order, and report it by Persisted. Their Responses
	// are the replica's own business.
	Appends []*raftpb.Message
	// Replies go to clients; those of one stream in this order.
	Replies []Reply
	// Events are the history that was applied in this turn.
	Events []machine.Event
	// Applied are the entries that were applied in this turn, for checkers. A replica's state
	// after a snapshot was installed is not in it.
	Applied []Applied
	// Snapshot is the next part of a snapshot to write, or nil.
	Snapshot *SnapshotPart
	// CompactTo, if not zero, says that log entries up to this index are in a durable snapshot.
	CompactTo uint64
	// Forget says what is to become of the secrets that the log and the kept snapshots may have.
	Forget Forget
	// Exit, if not empty, says why the process has to end now.
	Exit string
	// Stalled says that Exit is for a write that takes too long. Who knows that it waits for something other than the disk may go on.
	Stalled bool
	// Wake is when Turn must be called again at the latest.
	Wake Time
}

// A Forget is about secrets of before the feature level from which they are kept as hashes.
type Forget uint8

// ForgetLater: the log or a kept snapshot has some; note it durably before Appends, for Config.ForgetDue. ForgetNow: note it as well;
// once Appends and CompactTo are carried out no file needs them: take them out of the files, and then remove the note.
const (
	ForgetLater Forget = iota + 1
	ForgetNow
)

// Applied is one applied entry and what came of it.
type Applied struct {
	Index, Term uint64
	Entry       *machine.Entry // nil for entries of Raft's own
	Output      machine.Output
}

// A SnapshotPart is a piece of a snapshot. Parts of one snapshot come in order; a part of another Index means
// that the unfinished one was given up. After the Last one is durable, report SnapshotWritten.
type SnapshotPart struct {
	Metadata *raftpb.SnapshotMetadata
	First    bool
	Last     bool
	Chunk    []byte
}
