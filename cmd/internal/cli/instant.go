package cli

import "time"

// instantFormat is RFC 3339 in UTC with milliseconds. Every command uses it for times, in text and
// in JSON.
const instantFormat = "2006-01-02T15:04:05.000Z07:00"

// An instant is a time as it is shown to users.
type instant struct{ time.Time }

// String returns the time in the format that all commands use.
func (i instant) String() string { return i.UTC().Format(instantFormat) }

// MarshalJSON writes the same format, even for a time without a fraction of a second.
func (i instant) MarshalJSON() ([]byte, error) { return []byte(`"` + i.String() + `"`), nil }
