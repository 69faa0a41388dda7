package command

// A Header is what all commands of one log entry share.
type Header struct {
	Proposer uint64     // the node that proposed the entry
	Batch    uint64     // that node's number for the entry, to find the requests waiting for it
	Wall     WallMillis // the proposer's clock, for the history
}

// An Entry is the content of one log entry: a batch of commands.
type Entry struct {
	Header   Header
	Commands []Command
}

// A Command changes the state. The kinds are these types, passed by value: OpenSession,
// CloseSession, Acquire, Cancel, Release, Expire, EndWait, EndDelay, Revoke, SetTokenFloor,
// SetLimits, CheckHash, EndRecovery, SetMember, RemoveMember, SetBirth, CheckpointLeases and
// RenewLeases.
type Command interface{ command() }

// OpenSession opens a session. Its id is made of the command's position and Random, so a delayed
// duplicate opens a session that nobody uses.
type OpenSession struct {
	TTL            Millis
	Random         [8]byte
	Secret         Secret
	Hashed         bool // Secret is its [Secret.Hash]: from [SecretLevel] on
	ClientNumbered bool
	Metadata       []Label
}

// CloseSession ends a session at its owner's request. It is idempotent.
type CloseSession struct{ Session SessionID }

// Acquire makes a claim, or reads its present state if the claim is already known.
type Acquire struct {
	Session SessionID
	// Seq numbers the claim in a client-numbered session. In a machine-numbered one it is zero, and
	// Nonce, if not empty, identifies the claim in a retry.
	Seq   uint64
	Nonce string
	Floor uint64 // lowest seq whose answer, or nonce, the client still needs
	Seen  uint64 // last change number that the client has reached
	Spec  Spec
}

// MaxNames bounds the number of names of one claim.
const MaxNames = 16

// A Spec is what a claim asks for.
type Spec struct {
	Names     []string
	Mode      Mode
	Weight    uint32
	Capacity  uint32
	HasWait   bool
	Wait      Millis // with HasWait; zero is a try
	LockDelay Millis
	Metadata  []Label
}

// Try reports whether the claim is to be granted at once or not at all.
func (s *Spec) Try() bool { return s.HasWait && s.Wait == 0 }

// Cancel ends a claim, queued or granted. For a claim that has not been seen yet it stores
// Cancelled as the answer.
type Cancel struct {
	Session SessionID
	Seq     uint64
	Floor   uint64
	Seen    uint64
}

// Release ends the grant with this token and no other.
type Release struct {
	Session SessionID
	Seq     uint64
	Token   Token
}

// Expire ends sessions whose lease ran out. It is void unless Term is the term of its entry: a
// deposed leader's clock must not decide anything.
type Expire struct {
	Term     uint64
	Sessions []SessionID
}

// EndWait ends queued claims whose wait ran out or that nobody is waiting for any longer. It never
// takes back a grant. Like Expire, it is void in another term.
type EndWait struct {
	Term   uint64
	Claims []ClaimID
}

// EndDelay frees the names of closing claims whose delay has passed. Like Expire, it is void in
// another term.
type EndDelay struct {
	Term   uint64
	Claims []ClaimID
}

// Revoke ends one grant (Claim and Token) or, with a zero Claim.Seq, the whole session
// Claim.Session. It is a no-op when that grant is over.
type Revoke struct {
	Claim  ClaimID
	Token  Token
	By     string
	Reason string
	Now    bool // free the names at once instead of when the holder knows
}

// SetTokenFloor raises the token counter: next = max(next + 1, Floor). Nothing is granted before
// the first one.
type SetTokenFloor struct{ Floor Token }

// SetLimits replaces the limits. The first leader logs the first one.
type SetLimits struct{ Limits Limits }

// CheckHash compares the running hash of the state at the entry Index with the proposer's. A
// mismatch means that replicas have diverged, and stops the node.
type CheckHash struct {
	Index uint64
	Hash  uint64
}

// EndRecovery ends the waiting time after a restore. Like Expire, it is void in another term.
// Only the log of a restored cluster contains it, and a build that does not know the command
// refuses that cluster's first snapshot.
type EndRecovery struct{ Term uint64 }

func (OpenSession) command()   {}
func (CloseSession) command()  {}
func (Acquire) command()       {}
func (Cancel) command()        {}
func (Release) command()       {}
func (Expire) command()        {}
func (EndWait) command()       {}
func (EndDelay) command()      {}
func (Revoke) command()        {}
func (SetTokenFloor) command() {}
func (SetLimits) command()     {}
func (CheckHash) command()     {}
func (EndRecovery) command()   {}
