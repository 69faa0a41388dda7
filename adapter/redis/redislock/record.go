package redislock

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// parseRecord parses the reply of showScript. It returns nil for a record that is missing or not
// one of ours.
func parseRecord(fields []any) (*lockstep.Claim, error) {
	if len(fields) != 4 {
		return nil, fmt.Errorf("a record of %d fields, want 4", len(fields))
	}
	if fields[0] == nil {
		return nil, nil
	}
	token, err := parseToken(fields[0])
	if err != nil {
		return nil, err
	}
	c := &lockstep.Claim{Token: token}
	c.Owner, _ = fields[1].(string)
	micros, err := parseNumber("since", fields[2])
	if err != nil {
		return nil, err
	}
	c.Since = time.UnixMicro(micros)
	labels, _ := fields[3].(string)
	if err := json.Unmarshal([]byte(labels), &c.Metadata); err != nil {
		return nil, fmt.Errorf("metadata of a record: %w", err)
	}
	return c, nil
}

func parseToken(field any) (lockstep.Token, error) {
	n, err := parseNumber("token", field)
	if err == nil && (n < 1 || lockstep.Token(n) > lockstep.MaxToken) {
		err = fmt.Errorf("token %d of a record is out of range", n)
	}
	return lockstep.Token(n), err
}

func parseNumber(what string, field any) (int64, error) {
	text, ok := field.(string)
	n, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("%s %v of a record is no number", what, field)
	}
	return n, nil
}
