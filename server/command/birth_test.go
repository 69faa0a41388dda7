package command

import "testing"

func TestALateBirthTellsWhereItGrewFrom(t *testing.T) {
	b := LateBirth(BirthID{1, 2, 3, 15: 9}, "configuration")
	if !b.GrewFrom("configuration") || b.GrewFrom("another") || (BirthID{}).GrewFrom("configuration") || (BirthID{1, 2, 3, 15: 9}).GrewFrom("configuration") {
		t.Error("a birth is taken for a late one, or a late one for a first one")
	}
	if b == LateBirth(BirthID{2}, "configuration") {
		t.Error("two draws give one birth")
	}
}
