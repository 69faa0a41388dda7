package machine

import "testing"

func TestAReleasePassesTheLockToTheFirstWaiter(t *testing.T) {
	m := New()
	out := m.Apply(1, 1, &Entry{Commands: []Command{
		SetTokenFloor{10},
		OpenSession{TTL: 10_000, ClientNumbered: true},
		OpenSession{TTL: 10_000, ClientNumbered: true},
	}})
	a, b := out.Results[1].Session, out.Results[2].Session
	out = m.Apply(2, 1, &Entry{Commands: []Command{
		Acquire{Session: a, Seq: 1, Spec: Spec{Names: []string{"x"}}},
		Acquire{Session: b, Seq: 1, Spec: Spec{Names: []string{"x"}}},
	}})
	if got := out.Results[1].Claim; got.State != Queued || got.Position != 1 {
		t.Fatalf("the second claim is %+v, want queued at 1", got)
	}
	out = m.Apply(3, 1, &Entry{Commands: []Command{Release{a, 1, 10}}})
	if len(out.Changes) != 1 || out.Changes[0].Session != b || out.Changes[0].Claim.Token != 11 {
		t.Fatalf("changes are %+v, want token 11 for %v", out.Changes, b)
	}
	m.Apply(4, 1, &Entry{Commands: []Command{Release{b, 1, 11}}})
	if c := m.Counts(); c.Names != 0 || c.Holders != 0 || c.Waiters != 0 {
		t.Fatalf("counts are %+v, want nothing held", c)
	}
}
