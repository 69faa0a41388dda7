package client

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lockstep-dev/lockstep"
)

// A Position is a place in the history of a cluster, from which a watch can be resumed.
type Position struct {
	Cluster string // 32 hexadecimal digits; empty: the cluster being asked
	Number  uint64 // of an event; 0: the present
}

// ParsePosition reads what String writes: "CLUSTER:NUMBER", or just a number. Anything else is
// [lockstep.ErrInvalid].
func ParsePosition(text string) (Position, error) {
	cluster, number, found := strings.Cut(text, ":")
	if !found {
		cluster, number = "", text
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || found && !clusterID.MatchString(cluster) {
		return Position{}, &lockstep.InvalidError{Field: "position", Value: lockstep.Excerpt(text), Rule: "must be the number of an event, or CLUSTER:NUMBER with the 32 hexadecimal digits of its cluster"}
	}
	return Position{cluster, n}, nil
}

func (p Position) String() string {
	if p.Cluster == "" {
		return strconv.FormatUint(p.Number, 10)
	}
	return p.Cluster + ":" + strconv.FormatUint(p.Number, 10)
}

// A HistoryChangedError means that a position belongs to a history other than the cluster's current
// one. errors.Is finds [lockstep.ErrInvalid] in it.
type HistoryChangedError struct {
	Was     Position // the position that the watch had reached or was to start after
	Live    bool     // the watch had started in the old history
	Cluster string   // the current one; empty: not reported
	// Oldest and Newest are the bounds of the current history at the node that was asked: events
	// after Oldest are available.
	Oldest, Newest uint64
}

func (e *HistoryChangedError) Error() string {
	return fmt.Sprintf("lockstep: the history has changed: position %v belongs to an earlier history, before a restore, or to another cluster: continue after %v for all events still available, or after %v for new ones",
		e.Was, Position{e.Cluster, e.Oldest}, Position{e.Cluster, e.Newest})
}

// Is makes errors.Is(err, lockstep.ErrInvalid) hold.
func (e *HistoryChangedError) Is(target error) bool { return target == lockstep.ErrInvalid }
