package command

import "fmt"

var codeNames = [...]string{
	OK:             "ok",
	SessionUnknown: "session unknown",
	SessionExpired: "session expired",
	SessionRevoked: "session revoked",
	StaleRequest:   "stale request",
	RequestReused:  "request reused",
	ModeMismatch:   "mode mismatch",
	NotHeld:        "not held",
	NotQueued:      "not queued",
	Lost:           "lost",
	QuotaExceeded:  "quota exceeded",
	NotReady:       "not ready",
	OutOfRange:     "out of range",
	Malformed:      "malformed",
	Void:           "void",
	Exhausted:      "exhausted",
}

func (c Code) String() string { return text(codeNames[:], int(c), "code") }

var stateNames = [...]string{
	Queued:    "queued",
	Granted:   "granted",
	Released:  "released",
	Cancelled: "cancelled",
	Busy:      "busy",
	WaitEnded: "wait ended",
	Revoked:   "revoked",
	Expired:   "expired",
}

func (s State) String() string { return text(stateNames[:], int(s), "state") }

var modeNames = [...]string{Exclusive: "exclusive", Shared: "shared", Permits: "permits"}

func (m Mode) String() string { return text(modeNames[:], int(m), "mode") }

var eventNames = [...]string{
	EventGranted:   "granted",
	EventQueued:    "queued",
	EventReleased:  "released",
	EventExpired:   "expired",
	EventRevoked:   "revoked",
	EventCancelled: "cancelled",
}

func (k EventKind) String() string { return text(eventNames[:], int(k), "event") }

var timerNames = [...]string{
	SessionStarted: "session started",
	SessionEnded:   "session ended",
	WaitStarted:    "wait started",
	WaitOver:       "wait over",
	DelayStarted:   "delay started",
	DelayOver:      "delay over",
}

func (k TimerKind) String() string { return text(timerNames[:], int(k), "timer") }

func text(names []string, i int, kind string) string {
	if i < len(names) && names[i] != "" {
		return names[i]
	}
	return fmt.Sprintf("%s %d", kind, i)
}
