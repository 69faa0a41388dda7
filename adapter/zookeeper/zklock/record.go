package zklock

import (
	"encoding/json"
	"fmt"

	"github.com/lockstep-dev/lockstep"
)

// A record is the data of a claim's node, as JSON.
type record struct {
	// Owner is the session, as ZooKeeper's tools show it.
	Owner string `json:"owner"`
	// Token is that of a shared claim which was granted; it is zero before, and for an exclusive
	// claim.
	Token lockstep.Token `json:"token,omitempty"`
	// Metadata is the claim's.
	Metadata map[string]string `json:"metadata,omitempty"`
}

func (r record) encode() []byte {
	data, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("zklock: record %+v: %v", r, err)) // strings and a number
	}
	return data
}

// parseRecord reads what others wrote. Data that is no record is like none.
func parseRecord(data []byte) (r record) {
	if json.Unmarshal(data, &r) != nil {
		return record{}
	}
	return r
}
