package cli

import "time"

// instantFormat is RFC 3339 in UTC with milliseconds, which is how every command writes a time, in text and in JSON.
const instantFormat = "2006-01-02T15:04:05.000Z07:00"

// An instant is a time that is shown.
type instant struct{ time.Time }

// String is the time in the format of all commands.
func (i instant) String() string { return i.UTC().Format(instantFormat) }

// MarshalJSON writes the same, also for a time without a fraction of a second.
func (i instant) MarshalJSON() ([]byte, error) { return []byte(`"` + i.String() + `"`), nil }
