package command

import (
	"encoding/hex"
	"fmt"
)

// A SessionID names a session in public. Its text is 32 hexadecimal digits. The zero value names no
// session.
type SessionID [16]byte

func (id SessionID) String() string { return hex.EncodeToString(id[:]) }

// ParseSessionID reads the text form.
func ParseSessionID(s string) (SessionID, error) {
	var id SessionID
	if len(s) != 2*len(id) {
		return id, fmt.Errorf("command: session id has %d characters, want %d", len(s), 2*len(id))
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return SessionID{}, fmt.Errorf("command: session id: %w", err)
	}
	return id, nil
}

// A ClaimID names a claim forever: the session that made it and its number there.
type ClaimID struct {
	Session SessionID
	Seq     uint64
}

// A Token is the fencing token of a grant. Zero was never issued.
type Token uint64

// MaxToken is the largest token: JSON numbers are exact up to here.
const MaxToken Token = 1<<53 - 1

// A Mode is the kind of a claim.
type Mode uint8

// The modes, with the numbers of the wire protocol.
const (
	Exclusive Mode = iota
	Shared
	Permits
)

// Millis is a span of time in milliseconds. The machine stores such values for the leader and never
// measures any.
type Millis uint64

// WallMillis is a wall-clock time in milliseconds since 1970, for people.
type WallMillis uint64

// A Label is one entry of metadata. Lists of labels are sorted by key.
type Label struct{ Key, Value string }

// A State is the state of a claim, numbered as in the wire protocol.
type State uint8

// The states of a claim. Those from Released on are final.
const (
	Queued State = iota + 1
	Granted
	Released
	Cancelled
	Busy
	WaitEnded
	Revoked
	Expired
)

// Final reports whether the claim is over.
func (s State) Final() bool { return s >= Released }
