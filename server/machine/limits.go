package machine

import "fmt"

// FeatureLevel is the newest level that this build can apply, and the level of a new cluster whose
// founders all know it. A running cluster reaches it only through a [SetLimits]. [LevelOf] gives
// the level from which the log may hold a command.
//
//   - Level 2 has [SetBirth], [CheckpointLeases], [RenewLeases], and the rules that keeps guards.
//   - Level 3 stores hashes instead of secrets, see [SecretLevel], and has Limits.ClaimsTotal and
//     Limits.StateBytes.
const FeatureLevel = 3

// firstLevel is the level of a cluster before the first [SetLimits].
const firstLevel = 1

// keeps reports whether every end of a claim of a client-numbered session has a change number, and
// a machine-numbered session remembers what its client needs until floor and seen allow it to
// forget.
func (l *Limits) keeps() bool { return l.FeatureLevel >= 2 }

// MaxToken is the largest token: JSON numbers are exact up to here.
const MaxToken Token = 1<<53 - 1

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
		{&l.FeatureLevel, "feature level", 1, 1<<32 - 1, firstLevel},
		{&l.Sessions, "sessions", 1, 10_000_000, firstLevel},
		{&l.WaitersPerName, "waiters of a name", 1, 1_000_000, firstLevel},
		{&l.ClaimsPerSession, "claims of a session times their names", MaxNames, 1_000_000, firstLevel},
		{&l.RequestWindow, "requests ahead of the floor", 1, 1_000_000, firstLevel},
		{&l.RememberedClaims, "remembered claims", 1, 10_000, firstLevel},
		{&l.HistoryBytes, "bytes of history", 64 << 10, 1 << 30, firstLevel},
		{&l.AbnormalBytes, "bytes of abnormal history", 64 << 10, 1 << 30, firstLevel},
		{&l.ClaimsTotal, "claims of the whole cluster", 1, 100_000_000, 3},
		{&l.StateBytes, "bytes of sessions and claims of the whole cluster", 64 << 10, 1<<32 - 1, 3},
	}
}

// fields lists the limits that exist at the level of l. Those of later levels have no meaning
// there.
func (l *Limits) fields() []limitField {
	all := l.allFields()
	n := len(all)
	for n > 0 && all[n-1].level > l.FeatureLevel && all[n-1].level > firstLevel {
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

// broken names the first limit that is out of bounds, or returns "".
func (l *Limits) broken() string {
	for _, f := range l.fields() {
		if *f.value < f.min || *f.value > f.max {
			return fmt.Sprintf("%s: %d to %d", f.name, f.min, f.max)
		}
	}
	return ""
}

// Check returns an error that names the limit that is out of bounds, or nil.
func (l Limits) Check() error {
	if broken := l.broken(); broken != "" {
		return fmt.Errorf("machine: limit %s", broken)
	}
	return nil
}

func (m *Machine) changeLimits(c *SetLimits) Result {
	l := c.Limits
	if l.FeatureLevel > FeatureLevel { // decoding refuses it earlier
		panic(fmt.Errorf("%w: entry %d has feature level %d, this build supports %d", ErrNewer, m.index, l.FeatureLevel, FeatureLevel))
	}
	if broken := l.broken(); broken != "" {
		return Result{Code: OutOfRange, Limit: broken}
	}
	if l.FeatureLevel < m.limits.FeatureLevel {
		return Result{Code: OutOfRange, Limit: fmt.Sprintf("feature level: at least %d", m.limits.FeatureLevel)}
	}
	hashed := m.limits.hashes()
	m.setLimits(l)
	if m.limits.hashes() && !hashed {
		m.hashSecrets()
	}
	return Result{}
}

func (m *Machine) setLimits(l Limits) {
	l = l.At(l.FeatureLevel, l) // as a restored snapshot would have them
	m.limits = l
	m.history.resize(int(l.HistoryBytes))
	m.abnormal.resize(int(l.AbnormalBytes))
}

// ready reports whether a token can be issued.
func (m *Machine) ready() bool {
	return m.nextToken != 0 && m.nextToken <= MaxToken && !m.recovery.Pending()
}

// checkReady refuses while no token can be issued.
func (m *Machine) checkReady() Result {
	switch {
	case m.Exhausted():
		return Result{Code: Exhausted}
	case !m.ready():
		return Result{Code: NotReady}
	}
	return Result{}
}

// Exhausted reports whether all tokens have been issued: nothing will be granted again.
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

// Check predicts, before a command is proposed, whether it would be refused: it then returns the
// refusal and false. Otherwise it returns true, and the command may still be refused when it is
// applied. Check refuses for reasons that no command in flight can change, and for full queues and
// tables. It also returns NotReady while no token can be issued: only the caller knows whether the
// command that ends this state is in flight.
func (m *Machine) Check(c Command) (Result, bool) {
	r := Result{}
	switch c := c.(type) {
	case OpenSession:
		r = m.checkOpen(&c)
	case Acquire:
		r = m.checkAcquire(&c)
	case Cancel:
		r = m.checkCancel(&c)
	case Release:
		r = m.checkOwner(c.Session)
	}
	return r, r.Code == OK
}

func (m *Machine) checkOpen(c *OpenSession) Result {
	switch {
	case c.TTL == 0:
		return Result{Code: Malformed}
	case uint32(m.counts.Sessions) >= m.limits.Sessions:
		return m.refused(QuotaExceeded, "sessions", m.limits.Sessions)
	}
	return m.checkSums(0, sessionBytes+labelBytes(c.Metadata))
}

// checkOwner refuses a session that has ended, unless it can still confirm.
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
	}
	if r := m.checkWindow(s, c.Seq, c.Floor); r.Code != OK {
		return r
	}
	return m.checkSums(0, outcomeBytes)
}

// checkWindow refuses an unknown number that is too far ahead of the floor.
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
	if s.knows(a) {
		return Result{}
	}
	if s.numbered {
		if r := m.checkWindow(s, a.Seq, a.Floor); r.Code != OK {
			return r
		}
	}
	if r := m.checkReady(); r.Code != OK {
		return r
	}
	if r := m.checkSums(1, claimSize(&a.Spec, a.Nonce)); r.Code != OK {
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
