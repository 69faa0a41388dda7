package redlock

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// A sight is what one node shows about the holder of a lock: its record without the secret.
type sight struct {
	owner    string
	token    lockstep.Token // zero until step 2 has reached the node
	since    time.Time      // on the node's clock
	metadata map[string]string
}

// ownerOf is the public identity of a claim. It cannot be turned back into the claim's secret.
func ownerOf(claimID string) string {
	sum := sha256.Sum256([]byte("lockstep owner " + claimID))
	return hex.EncodeToString(sum[:8])
}

// recordTail is what a claim adds to the record that the script creates: the owner and the
// metadata.
func recordTail(claimID string, metadata map[string]string) (string, error) {
	text, err := json.Marshal(metadata)
	if err != nil {
		return "", fmt.Errorf("encode metadata: %w", err)
	}
	return ownerOf(claimID) + " " + string(text), nil
}

// parseSight parses a record without its secret: "reading token since owner metadata".
func parseSight(text string) (sight, error) {
	parts := strings.SplitN(text, " ", 5)
	if len(parts) != 5 {
		return sight{}, fmt.Errorf("a record of %d parts, want 5: is the key another program's?", len(parts))
	}
	token, errToken := strconv.ParseUint(parts[1], 10, 53)
	since, errSince := strconv.ParseInt(parts[2], 10, 64)
	if errToken != nil || errSince != nil {
		return sight{}, fmt.Errorf("a record with token %s and time %s: is the key another program's?", lockstep.Excerpt(parts[1]), lockstep.Excerpt(parts[2]))
	}
	s := sight{owner: parts[3], token: lockstep.Token(token), since: time.UnixMilli(since)}
	if err := json.Unmarshal([]byte(parts[4]), &s.metadata); err != nil {
		return sight{}, fmt.Errorf("metadata of a record: %w", err)
	}
	return s, nil
}

// holderOf returns the claim that a majority of count nodes show and that has a token. A claim
// without one is still between the steps and may fail.
func holderOf(count int, sights []sight) (lockstep.Claim, bool) {
	for _, s := range sights {
		votes := 0
		for _, other := range sights {
			if other.owner == s.owner {
				votes++
			}
		}
		if s.token != 0 && votes >= majority(count) {
			return lockstep.Claim{Owner: s.owner, Token: s.token, Since: s.since, Metadata: s.metadata}, true
		}
	}
	return lockstep.Claim{}, false
}
