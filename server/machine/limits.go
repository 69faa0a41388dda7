package machine

import "fmt"

// FeatureLevel is the newest level that this build can apply, and that of a new cluster. Level 2 has [SetBirth],
// [CheckpointLeases], [RenewLeases], and the rules that keeps names.
const FeatureLevel = 2

// firstLevel is that of a cluster before the first [SetLimits].
const firstLevel = 1

// keeps reports whether every end of a claim of a client-numbered session has a change number, and a machine-numbered
// session remembers what its client needs until floor and seen say otherwise.
func (l *Limits) keeps() bool { return l.FeatureLevel >= 2 }

// MaxToken is the largest token: JSON numbers are exact up to here.
const MaxToken Token = 1<<53 - 1

// A limitField is one of the Limits with its bounds.
type limitField struct {
	value    *uint32
	name     string
	min, max uint32
}

// fields lists the limits in the order in which they are encoded.
func (l *Limits) fields() [8]limitField {
	return [...]limitField{
		{&l.FeatureLevel, "feature level", 1, 1<<32 - 1},
		{&l.Sessions, "sessions", 1, 10_000_000},
		{&l.WaitersPerName, "waiters of a name", 1, 1_000_000},
		{&l.ClaimsPerSession, "claims of a session times their names", MaxNames, 1_000_000},
		{&l.RequestWindow, "requests ahead of the floor", 1, 1_000_000},
		{&l.RememberedClaims, "remembered claims", 1, 10_000},
		{&l.HistoryBytes, "bytes of history", 64 << 10, 1 << 30},
		{&l.AbnormalBytes, "bytes of abnormal history", 64 << 10, 1 << 30},
	}
}

// broken names the first limit out of its bounds, or is empty.
func (l *Limits) broken() string {
	for _, f := range l.fields() {
		if *f.value < f.min || *f.value > f.max {
			return fmt.Sprintf("%s: %d to %d", f.name, f.min, f.max)
		}
	}
	return ""
}

// Check says which limit is out of its bounds, and is nil when none is.
func (l Limits) Check() error {
	if broken := l.broken(); broken != "" {
		return fmt.Errorf("machine: limit %s", broken)
	}
	return nil
}

func (m *Machine) changeLimits(c *SetLimits) Result {
	l := c.Limits
	if l.FeatureLevel > FeatureLevel {
		panic(fmt.Errorf("%w: entry %d has feature level %d, this build knows %d", ErrNewer, m.index, l.FeatureLevel, FeatureLevel))
	}
	if broken := l.broken(); broken != "" {
		return Result{Code: OutOfRange, Limit: broken}
	}
	if l.FeatureLevel < m.limits.FeatureLevel {
		return Result{Code: OutOfRange, Limit: fmt.Sprintf("feature level: at least %d", m.limits.FeatureLevel)}
	}
	m.setLimits(l)
	return Result{}
}

func (m *Machine) setLimits(l Limits) {
	m.limits = l
	m.history.resize(int(l.HistoryBytes))
	m.abnormal.resize(int(l.AbnormalBytes))
}

// ready reports whether a token can be given.
func (m *Machine) ready() bool {
	return m.nextToken != 0 && m.nextToken <= MaxToken && !m.recovery.Pending()
}

// checkReady refuses while no token can be given.
func (m *Machine) checkReady() Result {
	switch {
	case m.Exhausted():
		return Result{Code: Exhausted}
	case !m.ready():
		return Result{Code: NotReady}
	}
	return Result{}
}

// Exhausted reports whether all tokens were given: nothing is granted again.
func (m *Machine) Exhausted() bool { return m.nextToken > MaxToken }

func (m *Machine) setTokenFloor(c *SetTokenFloor) Result {
	if c.Floor > MaxToken {
		return Result{Code: OutOfRange, Limit: fmt.Sprintf("token floor: at most %d", MaxToken)}
	}
	m.nextToken = max(m.nextToken+1, c.Floor)
	m.recovery.FloorDue = false
	m.finishRecovery()
	return Result{}
}

// Limits returns the limits in force.
func (m *Machine) Limits() Limits { return m.limits }

// Check tells before a command is proposed that it would be refused: the refusal, and
// false. Otherwise it returns true, and the command may still be refused when it is applied.
// It refuses for what no command on its way can mend, and for full queues and tables. NotReady it says while no token
// can be given: only the caller knows whether the command that ends that is on its way.
func (m *Machine) Check(c Command) (Result, bool) {
	r := Result{}
	switch c := c.(type) {
	case OpenSession:
		if c.TTL == 0 {
			r.Code = Malformed
		} else if uint32(m.counts.Sessions) >= m.limits.Sessions {
			r = m.refused(QuotaExceeded, "sessions", m.limits.Sessions)
		}
	case Acquire:
		r = m.checkAcquire(&c)
	case Cancel:
		r = m.checkCancel(&c)
	case Release:
		r = m.checkOwner(c.Session)
	}
	return r, r.Code == OK
}

// checkOwner refuses a session that has ended, but for one that can still confirm.
func (m *Machine) checkOwner(id SessionID) Result {
	if m.session(id) == nil && m.leaving(id) == nil {
		return Result{Code: m.SessionEnd(id)}
	}
	return Result{}
}

func (m *Machine) checkCancel(c *Cancel) Result {
	s := m.session(c.Session)
	switch {
	case s == nil:
		return m.checkOwner(c.Session)
	case c.Seq == 0:
		return Result{Code: Malformed}
	case !s.numbered || s.find(c.Seq) != nil || s.outcome(c.Seq) != nil:
		return Result{}
	default:
		return m.checkWindow(s, c.Seq, c.Floor)
	}
}

// checkWindow refuses a number that is not known and too far ahead of the floor.
func (m *Machine) checkWindow(s *session, seq, floor uint64) Result {
	if r := m.outside(s, seq, max(s.floor, floor)); r.Code == OutOfRange {
		return r
	}
	return Result{}
}

func (m *Machine) checkAcquire(a *Acquire) Result {
	s := m.session(a.Session)
	if s == nil {
		return Result{Code: m.SessionEnd(a.Session)}
	}
	if !a.wellFormed(s) {
		return Result{Code: Malformed}
	}
	if s.numbered {
		if s.find(a.Seq) != nil || s.outcome(a.Seq) != nil {
			return Result{}
		}
		if r := m.checkWindow(s, a.Seq, a.Floor); r.Code != OK {
			return r
		}
	} else if s.nonces[a.Nonce] != 0 {
		return Result{}
	}
	if r := m.checkReady(); r.Code != OK {
		return r
	}
	for _, text := range a.Spec.Names {
		n := m.find(text, hashText(0, text))
		if n != nil && !a.Spec.Try() && n.waiters.n >= int(m.limits.WaitersPerName) {
			return m.refused(QuotaExceeded, "waiters of a name", m.limits.WaitersPerName)
		}
	}
	return Result{}
}
