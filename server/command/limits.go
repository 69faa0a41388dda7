package command

import "fmt"

// FeatureLevel is the newest level that this build can apply, and the level of a new cluster whose
// founders all know it. A running cluster reaches it only through a [SetLimits]. [LevelOf] gives
// the level from which the log may hold a command.
//
//   - Level 2 has [SetBirth], [CheckpointLeases], [RenewLeases], and the rules about what a
//     session remembers of claims that are over.
//   - Level 3 stores hashes instead of secrets, see [SecretLevel], and has Limits.ClaimsTotal and
//     Limits.StateBytes.
const FeatureLevel = 3

// FirstLevel is the level of a cluster before the first [SetLimits].
const FirstLevel = 1

// Limits bound the state. They are replicated, so every replica refuses the same commands.
type Limits struct {
	FeatureLevel     uint32 // the newest kind of command that the log may hold
	Sessions         uint32
	WaitersPerName   uint32
	ClaimsPerSession uint32 // sum of the names of its claims, live and remembered
	RequestWindow    uint32 // seq < floor + RequestWindow
	// RememberedClaims bounds the ended claims of a machine-numbered session that its client does
	// not need.
	RememberedClaims uint32
	HistoryBytes     uint32 // size of the ring of all events
	AbnormalBytes    uint32 // size of the ring of expiries and revocations
	ClaimsTotal      uint32 // claims of all sessions, live or closing
	// StateBytes bounds all sessions with their claims, live and remembered, as encoded in a
	// snapshot.
	StateBytes uint32
}

// DefaultLimits returns the limits of a new cluster.
func DefaultLimits() Limits {
	return Limits{
		FeatureLevel:     FeatureLevel,
		Sessions:         200_000,
		WaitersPerName:   16_384,
		ClaimsPerSession: 4_096,
		RequestWindow:    1_024,
		RememberedClaims: 64,
		HistoryBytes:     32 << 20,
		AbnormalBytes:    8 << 20,
		ClaimsTotal:      1_000_000,
		StateBytes:       512 << 20,
	}
}

// A limitField is one of the Limits with its bounds.
type limitField struct {
	value    *uint32
	name     string
	min, max uint32
	level    uint32 // the feature level from which it is encoded and checked
}

// allFields lists the limits in the order in which they are encoded: by level. A new limit goes at
// the end, with a level that no released build knows.
func (l *Limits) allFields() [10]limitField {
	return [...]limitField{
		{&l.FeatureLevel, "feature level", 1, 1<<32 - 1, FirstLevel},
		{&l.Sessions, "sessions", 1, 10_000_000, FirstLevel},
		{&l.WaitersPerName, "waiters of a name", 1, 1_000_000, FirstLevel},
		{&l.ClaimsPerSession, "claims of a session times their names", MaxNames, 1_000_000, FirstLevel},
		{&l.RequestWindow, "requests ahead of the floor", 1, 1_000_000, FirstLevel},
		{&l.RememberedClaims, "remembered claims", 1, 10_000, FirstLevel},
		{&l.HistoryBytes, "bytes of history", 64 << 10, 1 << 30, FirstLevel},
		{&l.AbnormalBytes, "bytes of abnormal history", 64 << 10, 1 << 30, FirstLevel},
		{&l.ClaimsTotal, "claims of the whole cluster", 1, 100_000_000, 3},
		{&l.StateBytes, "bytes of sessions and claims of the whole cluster", 64 << 10, 1<<32 - 1, 3},
	}
}

// fields lists the limits that exist at the level of l. Those of later levels have no meaning
// there.
func (l *Limits) fields() []limitField {
	all := l.allFields()
	n := len(all)
	for n > 0 && all[n-1].level > l.FeatureLevel && all[n-1].level > FirstLevel {
		n--
	}
	return all[:n]
}

// At returns the limits for a feature level: those that l does not have yet are taken from fresh,
// and those of later levels are zero.
func (l Limits) At(level uint32, fresh Limits) Limits {
	was := l.FeatureLevel
	for i, f := range l.allFields() {
		switch {
		case f.level > level:
			*f.value = 0
		case f.level > was:
			*f.value = *fresh.allFields()[i].value
		}
	}
	l.FeatureLevel = level
	return l
}

// Broken names the first limit that is out of bounds, and the bounds, or returns "".
func (l *Limits) Broken() string {
	for _, f := range l.fields() {
		if *f.value < f.min || *f.value > f.max {
			return fmt.Sprintf("%s: %d to %d", f.name, f.min, f.max)
		}
	}
	return ""
}

// Check returns an error that names the limit that is out of bounds, or nil.
func (l Limits) Check() error {
	if broken := l.Broken(); broken != "" {
		return fmt.Errorf("command: limit %s", broken)
	}
	return nil
}

// Sums reports whether what all clients have together is bounded.
func (l *Limits) Sums() bool { return l.FeatureLevel >= 3 }
