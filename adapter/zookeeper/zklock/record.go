package zklock

import (
	"encoding/json"
	"fmt"

	"github.com/lockstep-dev/lockstep"
)

// A record is the data of a claim's node, as JSON.
type record struct {
	// Owner is the session, as shown by ZooKeeper's tools.
	Owner string `json:"owner"`
	// Token is the token of a granted shared claim; it is zero before that, and for an exclusive
	// claim.
	Token lockstep.Token `json:"token,omitempty"`
	// Metadata is the metadata of the claim.
	Metadata map[string]string `json:"metadata,omitempty"`
}

func (r record) encode() []byte {
	data, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("zklock: record %+v: %v", r, err)) // strings and a number can always be encoded
	}
	return data
}

// parseRecord parses data that others wrote. Data that is not a record counts as empty.
func parseRecord(data []byte) (r record) {
	if json.Unmarshal(data, &r) != nil {
		return record{}
	}
	return r
}
