package session

import (
	"fmt"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// A Kind is the kind of an [Update].
type Kind int

// The kinds of updates. Those with a Seq concern one claim.
const (
	// Opened: the session has its id. No Seq.
	Opened Kind = iota + 1
	// Resumed: the session is attached to a new connection. No Seq.
	Resumed
	// Renewed: the lease has moved. No Seq.
	Renewed
	// Queued: the claim is queued at Position, behind Holders.
	Queued
	// Granted: the claim holds its names with Token.
	Granted
	// Refused: the service refused the claim: Err says why. Nothing is held.
	Refused
	// Abandoned: the session ended before the claim was granted. Nothing is held; the
	// caller may ask again in a new session.
	Abandoned
	// Lost: a claim that was handed out is over: Reason, By and Detail say why. Also used for a
	// claim that was revoked before it could be handed out. Release the claim when its work has
	// stopped: the service keeps the names of a revoked claim closed until then, for at most a TTL.
	Lost
	// Released: the end that Release, Cancel or Close asked for is confirmed.
	Released
	// Reconnect: this connection is useless: the node is not the leader, or does not answer. Leader
	// is the address of the leader if the node reported it, and Err is the error. Call Disconnected
	// and connect elsewhere. No Seq.
	Reconnect
	// Deferred: the service temporarily refused the claim: Err says why. It is requested again, on
	// this connection, until it is accepted, given up or over. Without Seq it concerns the session:
	// another process has attached it, and this one attaches again.
	Deferred
	// Over: the session has ended; this comes after the updates of its claims. Reason is zero after
	// Close, and when the service refused to open the session, which Err then explains.
	Over
)

func (k Kind) String() string {
	names := [...]string{"none", "opened", "resumed", "renewed", "queued", "granted", "refused", "abandoned", "lost", "released", "reconnect", "deferred", "over"}
	if k < 0 || int(k) >= len(names) {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return names[k]
}

// An Update tells the shell what happened to a claim or to the session.
type Update struct {
	Kind     Kind
	Seq      uint64 // of the claim; zero with updates of the session
	Token    uint64
	Position uint32       // with Queued: 1 is the next
	Holders  []*pb.Holder // with Queued: who is in the way, as far as known
	Err      *pb.Error    // with Refused, Deferred, Reconnect and Over; may be nil with the latter two
	Reason   lockstep.LossReason
	By       string // with a revocation: who did it
	Detail   string // with Lost and Over: for display; may be empty
	Leader   string // with Reconnect: address of the leader; empty = not reported
}
