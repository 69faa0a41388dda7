package command

// An Output is everything that applying one entry produces.
type Output struct {
	Results []Result // one per command, in order
	Changes []Change // grants after a wait, and ends, in order
	Timers  []Timer  // timers that the leader has to start or stop
	Events  []Event  // the history
}

// A Code says why a command was refused. The machine's refusals are final answers: the same command
// gives the same code on every replica.
type Code uint8

// The codes. OK means that the command took effect or had taken effect earlier.
const (
	OK Code = iota
	SessionUnknown
	SessionExpired
	SessionRevoked
	StaleRequest
	RequestReused
	ModeMismatch
	NotHeld
	NotQueued
	Lost
	QuotaExceeded
	NotReady   // no token floor yet, or the wait after a restore
	OutOfRange // seq beyond the window, or a value beyond its bounds
	Malformed  // breaks a rule that is checked before proposing
	Void       // Expire, EndWait or EndDelay of another term than its entry's
	// Exhausted is only predicted, before a command is proposed: no token is left. Older builds
	// answer NotReady when they apply, so this one does too.
	Exhausted
)

// A Result answers one command.
type Result struct {
	Code    Code
	Limit   string // with QuotaExceeded and OutOfRange: which limit and its value
	Session SessionID
	Claim   ClaimStatus // of Acquire, Cancel and Release
	Revoked uint32      // of Revoke: claims ended
}

// A ClaimStatus is the present state of a claim, for its owner.
type ClaimStatus struct {
	Seq      uint64
	State    State
	Token    Token
	Position uint32 // while queued: 1 = next
	Change   uint64 // the session's change number at the claim's last change
	By       string // with Revoked
	Reason   string
	Blockers []Holder // with Busy and Queued in answers: the blocking claims, at most 16
}

// A Change reports to the owner of a claim that it was granted after a wait or is over, or that the
// session ended.
type Change struct {
	Session SessionID
	Number  uint64      // the session's new change number
	Claim   ClaimStatus // Claim.Change == Number; zero Seq with Ended
	Ended   Code        // SessionExpired or SessionRevoked when the whole session ended
	By      string
	Reason  string
}

// A TimerKind says what a Timer is about.
type TimerKind uint8

// The kinds of timers. Starts have a span; ends have none.
const (
	SessionStarted TimerKind = iota + 1
	SessionEnded
	WaitStarted
	WaitOver
	DelayStarted
	DelayOver
)

// A Timer starts or stops a timer that the leader keeps for the machine. When one runs out, the
// leader proposes Expire, EndWait or EndDelay.
type Timer struct {
	Kind  TimerKind
	Claim ClaimID // Seq is zero with the session kinds
	Span  Millis  // TTL, wait, or the length of the delay without the grace
	// Checkpointed: Span is what is left of a lease or a delay according to the log. Only set
	// in the list of all timers, for a new leader.
	Checkpointed bool
}

// An EventKind is what happened to a name, numbered as in the wire protocol.
type EventKind uint8

// The kinds of events.
const (
	EventGranted EventKind = iota + 1
	EventQueued
	EventReleased
	EventExpired
	EventRevoked
	EventCancelled
)

// An Event is one entry of the history: one thing that happened to one name.
type Event struct {
	Number   uint64
	Kind     EventKind
	Name     string
	Claim    ClaimID
	Token    Token
	Mode     Mode
	Wall     WallMillis
	Metadata []Label
	By       string
	Reason   string
}

// A Holder is a holder or waiter as others see it.
type Holder struct {
	Claim    ClaimID
	Token    Token // 0 for a waiter
	Since    WallMillis
	Mode     Mode
	Weight   uint32
	Metadata []Label // of the session and of the claim; the claim's win
	Closing  bool
	Names    []string
}

// A Lock is the public state of one name.
type Lock struct {
	Name      string
	Mode      Mode
	Capacity  uint32
	Used      uint64   // permits held
	Holders   []Holder // at most as many as asked for, in grant order
	Holding   int      // number of all holders
	Waiters   []Holder // at most as many as asked for, in queue order
	Waiting   int      // number of all waiters
	NextToken Token
}
