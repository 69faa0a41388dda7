package pglock

import (
	"encoding/json"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// A record is a row as take and inspect return it, after their first column.
type record struct {
	token    int64
	owner    string
	since    *time.Time // nil while no one holds the lock
	metadata string
}

// results returns the scan targets of the columns.
func (r *record) results() []any { return []any{&r.token, &r.owner, &r.since, &r.metadata} }

// claim is the holder.
func (r *record) claim() lockstep.Claim {
	c := lockstep.Claim{Owner: r.owner, Token: lockstep.Token(r.token)}
	if r.since != nil {
		c.Since = *r.since
	}
	if err := json.Unmarshal([]byte(r.metadata), &c.Metadata); err != nil {
		c.Metadata = nil // something else was written there; it is for display only
	}
	return c
}
