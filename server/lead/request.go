package lead

import (
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// A Time is a reading of the shell's monotonic clock: the time since some fixed moment of its
// process. Readings of two processes cannot be compared.
type Time time.Duration

// A StreamID names one stream of a client, or one unary call, while it lasts. The shell chooses it
// and never reuses it.
type StreamID uint64

// A Request is one client request whose form has been checked. Those of one stream take effect in
// the order given.
type Request struct {
	Stream   StreamID
	Tag      uint64 // comes back in the Reply
	Received Time   // when its bytes were read: no lease ends before older keepalives were handled
	Session  command.SessionID
	// Secret authenticates a unary call. It is nil on a stream, where Attach has authenticated.
	Secret *command.Secret
	From   Origin
	Body   Body
}

// An Origin is who is asking, as far as the shell knows. The zero value is one connection shared by
// all, from an address that is not counted.
type Origin struct {
	Connection uint64 // reads are shared out among connections
	Address    string // the client's host: the number of its sessions is bounded
}

// A Body is what a Request asks for: one of the types below, by value.
type Body interface{ body() }

type (
	// Open opens a session. On a stream, it is attached there with number 1.
	Open struct {
		TTL            command.Millis
		Random         [8]byte
		Secret         command.Secret
		ClientNumbered bool
		Metadata       []command.Label
		Attach         bool // bind the session to the stream
	}

	// Attach binds a session to the stream, and unbinds it from any other, if Number is higher than
	// that of the last attachment. The stream that had it gets Ended. If the service ended the
	// session, Ended comes before the refusal.
	Attach struct {
		Secret command.Secret
		Number uint64
		Seen   uint64
	}

	// KeepAlive renews the lease of the session.
	KeepAlive struct {
		Number uint64
		Seen   uint64 // unary calls only: the answer has the claims changed since
		Unary  bool
	}

	// Acquire proposes a claim. With Follow, later changes of the claim are sent to the stream as
	// Changed replies too, until the claim ends or the stream is closed.
	Acquire struct {
		Claim  command.Acquire
		Follow bool
	}

	// Cancel, Release and Close propose the commands of the same name.
	Cancel  struct{ Claim command.Cancel }
	Release struct{ Claim command.Release }
	Close   struct{}

	// Revoke proposes a revocation. With Name set, it is resolved to the holders of that name when
	// it is proposed: those whose token is Last or lower, or all if Last is zero.
	Revoke struct {
		Command command.Revoke
		Name    string
		Last    command.Token
	}

	// ReadLock, ReadLocks, ReadSessions and ReadHistory are linearizable reads.
	ReadLock struct {
		Name             string
		Holders, Waiters int // upper bounds
	}
	ReadLocks struct {
		Prefix, After string
		Limit         int
	}
	ReadSessions struct {
		After command.SessionID
		Limit int
	}
	ReadHistory struct {
		Name  string
		Limit int
	}

	// RaiseLevel asks for a higher feature level. A level that is already reached is answered like a
	// new one.
	RaiseLevel struct {
		To    uint32 // 0: the newest that any member supports
		Check bool   // only report what would happen
	}

	// ChangeMembers proposes a membership change. From Member, AddLearner uses ID, Name and Address;
	// the other changes find the member by its Name. A change that is already made is answered like
	// a new one.
	ChangeMembers struct {
		Change MemberChange
		Member command.Member
		Force  bool // remove although the healthy members left would not be a majority
	}

	// Gone reports that the stream was closed: its sessions are detached, and queued claims that it
	// followed are cancelled. It has no reply.
	Gone struct{}
)

func (Open) body()          {}
func (Attach) body()        {}
func (KeepAlive) body()     {}
func (Acquire) body()       {}
func (Cancel) body()        {}
func (Release) body()       {}
func (Close) body()         {}
func (Revoke) body()        {}
func (ReadLock) body()      {}
func (ReadLocks) body()     {}
func (ReadSessions) body()  {}
func (ReadHistory) body()   {}
func (Gone) body()          {}
func (RaiseLevel) body()    {}
func (ChangeMembers) body() {}

// A MemberChange is what ChangeMembers asks for.
type MemberChange uint8

// The changes. A new member is a learner, which has no vote, until it is promoted.
const (
	AddLearner MemberChange = iota
	PromoteLearner
	RemoveMember
)

// A Reply goes to the client on one stream. Replies of one stream are delivered in the order given.
// Tag is the request's tag, or zero for what the client did not ask for.
type Reply struct {
	Stream  StreamID
	Tag     uint64
	Session command.SessionID
	Answer  Answer
	// Received is set for an Acquire that was proposed, else zero.
	Received Time
}

// An Answer is the content of a Reply: one of the types below, by value.
type Answer interface{ answer() }

type (
	// Opened answers Open.
	Opened struct {
		Session command.SessionID
		Secret  command.Secret
		TTL     command.Millis
		Grace   command.Millis
	}

	// Attached answers Attach, after all the claims that changed after Attach.Seen.
	Attached struct {
		Change     uint64
		TTL, Grace command.Millis
	}

	// Kept answers KeepAlive, after all changes up to Change.
	Kept struct {
		Number  uint64
		Change  uint64
		TTL     command.Millis
		Changes []command.ClaimStatus // unary calls only
	}

	// Claimed answers Acquire, Cancel and Release.
	Claimed struct{ Claim command.ClaimStatus }

	// Closed answers Close.
	Closed struct{}

	// RevokedClaims answers Revoke.
	RevokedClaims struct{ Count uint32 }

	// Changed reports a change of a claim. It comes before the answer to the request that caused
	// it, if any.
	Changed struct{ Claim command.ClaimStatus }

	// Ended reports that the session is over, or over for the client of this stream.
	Ended struct {
		// Code is SessionExpired, SessionRevoked, or SessionUnknown when another connection took or
		// closed the session.
		Code       command.Code
		By, Reason string
	}

	// LockRead, LocksRead, SessionsRead and HistoryRead answer the reads.
	LockRead struct {
		Lock   command.Lock
		Newest uint64 // number of the newest event of any name in that state; 0 = none
	}
	LocksRead struct {
		Locks []command.Lock
		More  bool
	}
	SessionsRead struct {
		Sessions []SessionState
		More     bool
	}
	HistoryRead struct {
		Events   []command.Event
		Complete bool
	}

	// LevelRaised answers RaiseLevel: the level before, and the level after (with Check, what it
	// would be).
	LevelRaised struct{ From, To uint32 }

	// MembersChanged answers ChangeMembers.
	MembersChanged struct{ Member command.Member }

	// Refused says why a request had no effect, or has none for now. After NotLeader, a request
	// that was proposed may still take effect: the client retries it under the same number.
	Refused struct {
		Reason Refusal
		Code   command.Code // with RefusedByMachine
		Limit  string       // which limit or, with NotReady, the reason, for people
		Claim  command.ClaimStatus
		// RetryAfter is, with NotReady, how long that lasts at most while this replica leads; 0:
		// not known.
		RetryAfter time.Duration
		Uncertain  bool   // with NotLeader: the request was proposed, and may still take effect
		Attached   uint64 // with OldAttachment: the number of the present attachment
	}
)

func (Opened) answer()         {}
func (Attached) answer()       {}
func (Kept) answer()           {}
func (Claimed) answer()        {}
func (Closed) answer()         {}
func (RevokedClaims) answer()  {}
func (Changed) answer()        {}
func (Ended) answer()          {}
func (LockRead) answer()       {}
func (LocksRead) answer()      {}
func (SessionsRead) answer()   {}
func (HistoryRead) answer()    {}
func (Refused) answer()        {}
func (LevelRaised) answer()    {}
func (MembersChanged) answer() {}

// A SessionState is a live session and the time until the leader ends it unless it is renewed; zero
// when its end is in flight.
type SessionState struct {
	machine.SessionView
	ExpiresIn command.Millis
}

// A Refusal is the kind of a Refused answer.
type Refusal uint8

// The refusals.
const (
	RefusedByMachine Refusal = iota // see Code
	// NotLeader: this replica does not lead, or no longer; with Tag 0 nothing more comes for the
	// session from here.
	NotLeader
	Overloaded    // the queue of proposals is full
	NotAttached   // the session is not bound to this stream
	OldAttachment // Attach.Number is not higher than the last one
	// MembersBusy: the membership can't change now, but perhaps later: Limit says why.
	MembersBusy
	MembersRefused // the membership can't change in this way: Limit says why
	// LevelBusy: the feature level can't rise now, but perhaps later: Limit says why.
	LevelBusy
	LevelRefused // the feature level can't rise: Limit says why
)
