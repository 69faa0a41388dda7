package pglock

import (
	"encoding/json"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// A record is a row as take and inspect return it, behind their first column.
type record struct {
	token    int64
	owner    string
	since    *time.Time // nil while nobody holds the lock
	metadata string
}

// results are where the columns go.
func (r *record) results() []any { return []any{&r.token, &r.owner, &r.since, &r.metadata} }

// claim is the holder.
func (r *record) claim() lockstep.Claim {
	c := lockstep.Claim{Owner: r.owner, Token: lockstep.Token(r.token)}
	if r.since != nil {
		c.Since = *r.since
	}
	if err := json.Unmarshal([]byte(r.metadata), &c.Metadata); err != nil {
		c.Metadata = nil // somebody else has written something else there; it is for people only
	}
	return c
}
