package machine

import (
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
	"pgregory.net/rapid"
)

var newest = command.SetLimits{Limits: command.DefaultLimits()}

func TestTheFirstBirthCounts(t *testing.T) {
	m := New()
	apply(m, newest, command.SetTokenFloor{Floor: 1})
	if !m.Rootless() {
		t.Error("tokens without a birth, and not rootless")
	}
	before := restored(t, m)
	apply(m, command.SetBirth{Birth: command.BirthID{1}}, command.SetBirth{Birth: command.BirthID{2}})
	apply(before, command.SetBirth{Birth: command.BirthID{2}})
	if m.Birth() != (command.BirthID{1}) || before.Birth() != (command.BirthID{2}) {
		t.Errorf("births %v and %v", m.Birth(), before.Birth())
	}
	if m.Hash() == before.Hash() {
		t.Error("machines of two births have one hash")
	}
	if got := restored(t, m); got.Birth() != m.Birth() || got.Hash() != m.Hash() || got.Rootless() {
		t.Errorf("birth %v after a snapshot", got.Birth())
	}
	if r := apply(m, command.SetBirth{}).Results[0]; r.Code != command.Malformed {
		t.Errorf("a birth of zero: %v", r.Code)
	}
	m.Renew(1, 0)
	if m.Birth() != (command.BirthID{}) || m.Rootless() {
		t.Error("a restored cluster has the birth of the one in the backup")
	}
}

func TestABirthNeedsItsFeatureLevel(t *testing.T) {
	m := New()
	if r := apply(m, command.SetBirth{Birth: command.BirthID{1}}).Results[0]; r.Code != command.OutOfRange || m.Birth() != (command.BirthID{}) {
		t.Errorf("a birth at feature level 1: %v %s", r.Code, r.Limit)
	}
}

// The entries of a cluster at feature level 1 must lead to the same state as in older builds.
func TestANewMachineHasTheFirstLevel(t *testing.T) {
	m := New()
	limits := command.DefaultLimits()
	limits.FeatureLevel = 1
	if r := apply(m, command.SetLimits{Limits: limits}).Results[0]; r.Code != command.OK {
		t.Errorf("limits of level 1: %v %s", r.Code, r.Limit)
	}
}

// Two machines with the same history never differ; those with different histories do as soon as
// they have an index in common, which they have however far apart they are.
func TestMarksTellHistoriesApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		run := func(first byte, entries []uint64) *Machine {
			m := New()
			for i, index := range entries {
				open := command.OpenSession{TTL: 1, Random: [8]byte{0: first, 7: byte(i)}}
				m.Apply(index, 1, &command.Entry{Commands: []command.Command{open}})
				first = 0
			}
			return m
		}
		index := uint64(2)
		entries := []uint64{index}
		for range rapid.IntRange(1, 300).Draw(t, "entries") {
			index += rapid.SampledFrom([]uint64{1, 1, 1, 1, 2, 5, 70}).Draw(t, "step")
			entries = append(entries, index)
		}
		short := entries[:rapid.IntRange(1, len(entries)).Draw(t, "short")]
		a, b, other := run(1, entries), run(1, short), run(2, short)
		if at, differ := Differ(a.Marks(), b.Marks()); differ {
			t.Fatalf("machines of one history differ at %d", at)
		}
		if _, differ := Differ(a.Marks(), other.Marks()); !differ {
			t.Fatalf("machines of two histories, at %d and %d, are not told apart", a.Index(), other.Index())
		}
	})
}
