package election_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/election"
	"github.com/lockstep-dev/lockstep/memlock"
)

// bare is a Locker that can neither watch nor inspect.
type bare struct{ lockstep.Locker }

// inspecting is a Locker that cannot watch.
type inspecting struct {
	lockstep.Locker
	lockstep.Inspector
}

func TestWhatBreaksARuleIsRefusedWithFieldRuleAndLimit(t *testing.T) {
	const second, ms = time.Second, time.Millisecond
	for name, c := range map[string]struct {
		cfg         election.Config
		field, rule string
	}{
		"a drain that leaves no time for renewals": {election.Config{Drain: 5800 * ms}, "drain", "less than 5.8s: the TTL of 10s less the margin of 200ms and the shortest renew deadline of 4s"},
		"a negative drain":                         {election.Config{Drain: -1}, "drain", "less than 5.8s"},
		"a drain that does not fit the deadline":   {election.Config{RenewDeadline: 7 * second, Drain: 2801 * ms}, "renew deadline", "together with the drain at most 9.8s"},
		"a deadline that leaves no drain":          {election.Config{RenewDeadline: 9800 * ms}, "renew deadline", "together with the drain at most 9.8s"},
		"a deadline that comes before a renewal":   {election.Config{RenewDeadline: 4 * second}, "renew deadline", "more than 4s"},
		"a negative deadline":                      {election.Config{RenewDeadline: -1}, "renew deadline", "more than 4s"},
		"a retry that comes after the deadline":    {election.Config{RenewDeadline: 6 * second, RetryPeriod: 5 * second}, "retry period", "1.2 x it less than the renew deadline of 6s"},
		"a retry without a pause":                  {election.Config{RetryPeriod: 1}, "retry period", "at least 10ms"},
		"a cooldown without end":                   {election.Config{Cooldown: lockstep.MaxWait + 1}, "cooldown", "must be 0 to"},
		"a negative cooldown":                      {election.Config{Cooldown: -1}, "cooldown", "must be 0 to"},
		"an identity that is too long":             {election.Config{Identity: strings.Repeat("x", 257)}, "identity", "257 bytes long, the limit is 256"},
		"an identity that nobody can read":         {election.Config{Identity: "a\x00b"}, "identity", "printable"},
		"labels that hide the identity":            {election.Config{Metadata: map[string]string{"identity": "x"}}, "metadata", "set Identity"},
		"labels that are too long":                 {election.Config{Metadata: map[string]string{"k": strings.Repeat("x", 1024)}}, "metadata", "the limit is 1024"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := election.New(memlock.New(), "leader", c.cfg)
			invalid, ok := errors.AsType[*lockstep.InvalidError](err)
			if !ok || invalid.Field != c.field || !strings.Contains(invalid.Rule, c.rule) {
				t.Errorf("error %v, want field %q and rule %q", err, c.field, c.rule)
			}
		})
	}
}

func TestLimitsThemselvesAreAllowed(t *testing.T) {
	for name, cfg := range map[string]election.Config{
		"nothing is set":                   {},
		"the longest drain":                {Drain: 5800*time.Millisecond - 1},
		"deadline and drain fill the TTL":  {RenewDeadline: 7 * time.Second, Drain: 2800 * time.Millisecond},
		"the shortest deadline":            {RenewDeadline: 4*time.Second + 1},
		"the longest deadline":             {RenewDeadline: 9800*time.Millisecond - 1},
		"a retry just before the deadline": {RenewDeadline: 6*time.Second + 10, RetryPeriod: 5 * time.Second},
	} {
		if _, err := election.New(memlock.New(), "leader", cfg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDefaultsFitEveryTTL(t *testing.T) {
	for _, ttl := range []time.Duration{301 * time.Millisecond, lockstep.MinTTL, 4 * time.Second, lockstep.DefaultTTL, lockstep.MaxTTL} {
		if _, err := election.New(memlock.New(memlock.WithTTL(ttl)), "leader", election.Config{}); err != nil {
			t.Errorf("TTL %v: %v", ttl, err)
		}
	}
}

func TestBadNamesAreRefusedBeforeAnythingIsSent(t *testing.T) {
	_, err := election.New(memlock.New(), "a//b", election.Config{})
	if invalid, ok := errors.AsType[*lockstep.InvalidError](err); !ok || invalid.Field != "name" {
		t.Errorf("error %v, want an InvalidError of the name", err)
	}
}

func TestDefaultIdentitiesDiffer(t *testing.T) {
	l := memlock.New()
	a, b := candidate(t, l, election.Config{}), candidate(t, l, election.Config{})
	if a.Identity() == b.Identity() || !strings.Contains(a.Identity(), "_") {
		t.Errorf("identities %q and %q", a.Identity(), b.Identity())
	}
}

func TestOnNewLeaderIsRefusedWhereNobodyCanTell(t *testing.T) {
	cfg := election.Config{OnNewLeader: func(string) {}}
	if _, err := election.New(bare{memlock.New()}, "leader", cfg); !errors.Is(err, lockstep.ErrUnsupported) {
		t.Errorf("error %v, want ErrUnsupported", err)
	}
	l := memlock.New()
	if _, err := election.New(inspecting{l, l}, "leader", cfg); err != nil {
		t.Errorf("a backend that can inspect: %v", err)
	}
}
