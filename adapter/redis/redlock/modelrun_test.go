package redlock

import "testing"

// maxStates bounds a run of the model. If it needs more, it has changed so much that someone should
// look at it.
const maxStates = 400_000

// The scenarios that the model explores completely: every order of everything that can happen in
// them.
func TestModelKeepsItsPromises(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]rules{
		"two clients":                            {clients: 2},
		"clients that give up":                   {clients: 2, givingUp: true},
		"readings that are at least the clock's": {clients: 2, floor: true},
		"a request that is delivered twice":      {clients: 2, duplicates: true},
		"a holder that renews":                   {clients: 2, settled: true, renewals: true, givingUp: true},
		"two that follow a holder":               {clients: 3, settled: true},
	} {
		t.Run(name, func(t *testing.T) {
			states, found, whole := explore(r, maxStates, brokenExclusion, brokenTokens)
			t.Logf("%d states", states)
			if found != nil || !whole {
				t.Errorf("whole %v, %+v", whole, found)
			}
		})
	}
}

// What breaks exclusion does not break the order of tokens, which guards rely on.
func TestModelKeepsTokensInOrderWithoutExclusion(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]rules{
		"a clock that jumps":                    {clients: 2, clockJumps: true},
		"a grant that is believed too late":     {clients: 2, ignoreTime: true},
		"a node that forgets and has its clock": {clients: 2, forgets: 1, floor: true},
	} {
		t.Run(name, func(t *testing.T) {
			if _, found, _ := explore(r, maxStates, brokenExclusion); found == nil {
				t.Error("exclusion is not broken, so this shows nothing")
			}
			states, found, whole := explore(r, maxStates, brokenTokens)
			t.Logf("%d states", states)
			if found != nil || !whole {
				t.Errorf("whole %v, %+v", whole, found)
			}
		})
	}
}

// Switching off any rule breaks a promise. A rule for which this is not so is not needed.
func TestModelMissesEachRule(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rules
		promise string
	}{
		"count a node whose reply was lost":              {rules{clients: 2, countSilent: true}, brokenTokens},
		"raise without looking for our lock":             {rules{clients: 2, noCheck: true}, brokenTokens},
		"compare the secret alone":                       {rules{clients: 2, duplicates: true, secretAlone: true}, brokenTokens},
		"restart without persistence and no clock floor": {rules{clients: 2, forgets: 1}, brokenTokens},
		"restart without persistence":                    {rules{clients: 2, forgets: 1, floor: true}, brokenExclusion},
		"delete without comparing":                       {rules{clients: 3, settled: true, givingUp: true, deleteAny: true}, brokenExclusion},
		"believe a grant that comes after the lease":     {rules{clients: 2, ignoreTime: true}, brokenExclusion},
		"let clocks jump":                                {rules{clients: 2, clockJumps: true}, brokenExclusion},
		"take the yes of one node for a renewal":         {rules{clients: 2, settled: true, renewals: true, renewByOneYes: true}, brokenExclusion},
	} {
		t.Run(name, func(t *testing.T) {
			states, found, _ := explore(c.rules, maxStates, c.promise)
			if found == nil {
				t.Fatalf("nothing is broken in %d states, want: %s", states, c.promise)
			}
			t.Logf("%s, found after %d states: %v", found.what, states, found.path)
		})
	}
}
