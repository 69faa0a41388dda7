package client

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep"
)

var (
	idA = strings.Repeat("a", 32)
	idB = strings.Repeat("b", 32)
	idC = strings.Repeat("c", 32)
)

func TestAPinTakesTheFirstClusterAndKeepsIt(t *testing.T) {
	t.Parallel()
	var p pin
	for _, a := range []answer{{"n1:1", ""}, {"n2:1", idA}, {"n3:1", idA}, {"n4:1", ""}} {
		if err := p.hear(a); err != nil {
			t.Errorf("%v: %v", a, err)
		}
	}
	err := p.hear(answer{"n5:1", idB})
	if err == nil || p != (pin{idA, "n2:1"}) || *err != (ClusterError{Endpoint: "n5:1", Cluster: idB, Want: idA, WantFrom: "n2:1"}) {
		t.Errorf("pin %+v, err %+v", p, err)
	}
	for _, want := range []string{"n5:1", idB, "n2:1", idA} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
	if !errors.Is(err, ErrTwoClusters) || !errors.Is(err, lockstep.ErrInvalid) || errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("%v is the wrong kind of error", err)
	}
	given := pin{cluster: idA}
	if err := given.hear(answer{"n1:1", idB}); err == nil || err.WantFrom != "" || !strings.Contains(err.Error(), idA) {
		t.Errorf("a cluster that the caller wants: %v", err)
	}
}

func TestWhatAnswersMeanTogether(t *testing.T) {
	t.Parallel()
	told, given := pin{idA, "n1:1"}, pin{cluster: idA}
	for _, c := range []struct {
		name string
		pin  pin
		n    int
		say  string // a letter for each endpoint that reported its cluster, - for one that answered without it
		want verdict
	}{
		{"nobody answers", told, 3, "", few},
		{"a majority answers and does not tell", told, 3, "--", agreed},
		{"one is of another cluster, one does not tell", told, 3, "b-", unsure},
		{"all are of this cluster", told, 3, "aaa", agreed},
		{"one is of this cluster, the others are silent", told, 3, "a", few},
		{"a majority is of this cluster, the other is silent", told, 3, "aa", agreed},
		{"one is of another cluster", told, 3, "aab", clashing},
		{"all but one are of another cluster", told, 3, "bba", clashing},
		{"they are of two other clusters", told, 3, "bc", clashing},
		{"all are of another cluster", told, 3, "bbb", replaced},
		{"a majority is of another cluster, the rest is silent", told, 3, "bb", replaced},
		{"a minority is of another cluster, the rest is silent", told, 3, "b", unsure},
		{"half are of another cluster, the rest is silent", told, 2, "b", unsure},
		{"the only endpoint is of another cluster", told, 1, "b", replaced},
		{"the caller wants this cluster, and all are of another", given, 3, "bbb", clashing},
		{"the caller wants this cluster, and one is of another", given, 3, "b", clashing},
		{"the caller wants this cluster", given, 3, "aaa", agreed},
	} {
		var answers []answer
		for i, letter := range c.say {
			id := strings.Repeat(strings.Trim(string(letter), "-"), 32)
			answers = append(answers, answer{"n" + string(rune('2'+i)) + ":1", id})
		}
		got, err := c.pin.judge(answers, c.n)
		if got != c.want || (err == nil) != (got == agreed || got == few) {
			t.Errorf("%s: verdict %d, %v; want %d", c.name, got, err, c.want)
		}
		if err != nil && err.Cluster == err.Want {
			t.Errorf("%s: %v names one cluster twice", c.name, err)
		}
	}
}

func TestAPositionReadsWhatItWrote(t *testing.T) {
	t.Parallel()
	for _, p := range []Position{{}, {Number: 7}, {idA, 0}, {idB, 1<<64 - 1}} {
		if got, err := ParsePosition(p.String()); err != nil || got != p {
			t.Errorf("%v: read %v, %v", p, got, err)
		}
	}
	for _, text := range []string{"", ":", "-1", "x", ":7", "abc:7", idC, idC + ":", idC + ":x", idC + ":1:2", strings.ToUpper(idA) + ":1", "18446744073709551616"} {
		if got, err := ParsePosition(text); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("%q: read %v, %v", text, got, err)
		}
	}
}
