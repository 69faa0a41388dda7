//go:build unix

package faulttest_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// A term as recorded in the journal. Zero times did not occur.
type term struct {
	token              lockstep.Token
	id                 int
	began, over, ended time.Duration
	frozen             bool
	wrote              []int
	refused, busy      int
}

// drained returns how long the body continued after it could know that its term was over.
func (m *term) drained() time.Duration {
	if m.over == 0 || m.over > m.ended { // the body was as fast as the note
		return 0
	}
	return m.ended - m.over
}

// A verdict is what the journal and the resource prove.
type verdict struct {
	problems                        []string
	terms, writes, refusals, busies int
	// overlaps counts the bodies of frozen leaders that were still running when the next term
	// began.
	overlaps int
	// unconfirmed counts lines of the resource whose writer was killed before it could report them.
	unconfirmed int
	// slowest is the longest drain of a body that was not frozen.
	slowest time.Duration
}

func (v *verdict) problem(format string, args ...any) {
	v.problems = append(v.problems, fmt.Sprintf(format, args...))
}

// judge compares what happened with the promises of package election. drain is how long a body may
// take.
func judge(journal []entry, resource []line, drain time.Duration) verdict {
	v := verdict{}
	terms := v.pair(journal)
	v.compare(terms, resource)
	order := slices.SortedFunc(maps.Values(terms), func(a, b *term) int { return cmp.Compare(a.token, b.token) })
	v.terms = len(order)
	for i, m := range order {
		v.writes, v.refusals, v.busies = v.writes+len(m.wrote), v.refusals+m.refused, v.busies+m.busy
		prompt := !m.frozen && m.drained() <= drain
		if prompt && m.refused > 0 {
			v.problem("term %d: the resource refused a leader that was not frozen, %v after its term", m.token, m.drained())
		}
		if !m.frozen {
			v.slowest = max(v.slowest, m.drained())
		}
		if i+1 == len(order) || m.ended <= order[i+1].began {
			continue
		}
		if prompt {
			v.problem("term %d began %v before the body of term %d returned", order[i+1].token, m.ended-order[i+1].began, m.token)
		}
		if m.frozen {
			v.overlaps++
		}
	}
	return v
}

// pair builds terms from the journal, and checks that beginnings and ends are paired in each
// process.
func (v *verdict) pair(journal []entry) map[lockstep.Token]*term {
	terms := map[lockstep.Token]*term{}
	current := map[int]*term{} // by process
	// Whether the end of a process seen in the journal is accounted for.
	gone := map[int]bool{0: false}
	for _, e := range journal {
		m := terms[e.Token]
		if e.Token != 0 && e.What != began && (m == nil || m.id != e.ID || m.ended != 0 && e.What != over) {
			v.problem("process %d: %q outside of term %d", e.ID, e.What, e.Token)
			continue
		}
		switch e.What {
		case began:
			if current[e.ID] != nil || m != nil {
				v.problem("process %d: term %d began before the last had ended, or twice", e.ID, e.Token)
			}
			m = &term{token: e.Token, id: e.ID, began: e.At}
			terms[e.Token], current[e.ID] = m, m
		case over:
			m.over = e.At
		case ended:
			m.ended, current[e.ID] = e.At, nil
		case wrote:
			m.wrote = append(m.wrote, e.N)
		case refused:
			m.refused++
		case busy:
			m.busy++
		case frozen:
			if current[e.ID] != nil {
				current[e.ID].frozen = true
			}
		case killed:
			current[e.ID], gone[e.ID] = nil, true
		case left:
			gone[e.ID] = true
			if e.Note != "" {
				v.problem("process %d left goroutines: %s", e.ID, e.Note)
			}
		}
		if !gone[e.ID] {
			gone[e.ID] = false
		}
	}
	v.unpaired(current, gone)
	return terms
}

func (v *verdict) unpaired(current map[int]*term, gone map[int]bool) {
	for id, m := range current {
		if m != nil {
			v.problem("process %d: term %d has no end", id, m.token)
		}
	}
	for id, accounted := range gone {
		if !accounted && id != 0 {
			v.problem("process %d did not end in good order", id)
		}
	}
}

// compare checks that the resource was written in token order, that each term's lines are together,
// and that it has every line that was confirmed.
func (v *verdict) compare(terms map[lockstep.Token]*term, resource []line) {
	last := line{}
	has := map[line]bool{}
	for _, l := range resource {
		if l.token < last.token || l.token == last.token && l.n != last.n+1 || l.token > last.token && l.n != 1 {
			v.problem("the resource has line %d of term %d after line %d of term %d", l.n, l.token, last.n, last.token)
		}
		if terms[l.token] == nil {
			v.problem("the resource has a line of term %d, which never began", l.token)
		}
		last, has[l] = l, true
	}
	confirmed := 0
	for _, m := range terms {
		for _, n := range m.wrote {
			confirmed++
			if !has[line{m.token, n}] {
				v.problem("line %d of term %d was accepted and is lost", n, m.token)
			}
		}
	}
	v.unconfirmed = len(resource) - confirmed
}

// TestTheJudgeOfElectionsSeesEachProblem plants each problem in a history without any.
func TestTheJudgeOfElectionsSeesEachProblem(t *testing.T) {
	const drain = 10
	story := func() []entry {
		return []entry{
			{At: 1, ID: 1, What: began, Token: 1}, {At: 2, ID: 1, What: wrote, Token: 1, N: 1},
			{At: 3, ID: 1, What: over, Token: 1}, {At: 4, ID: 1, What: ended, Token: 1},
			{At: 5, ID: 2, What: began, Token: 2}, {At: 6, ID: 2, What: wrote, Token: 2, N: 1},
			{At: 7, ID: 2, What: frozen}, {At: 20, ID: 1, What: began, Token: 3},
			{At: 30, ID: 2, What: refused, Token: 2, N: 2}, {At: 31, ID: 2, What: ended, Token: 2},
			{At: 32, ID: 1, What: killed}, {At: 40, ID: 2, What: left},
		}
	}
	lines := []line{{1, 1}, {2, 1}, {2, 2}, {3, 1}}
	if v := judge(story(), lines, drain); len(v.problems) > 0 || v.terms != 3 || v.writes != 2 || v.refusals != 1 || v.overlaps != 1 || v.unconfirmed != 2 {
		t.Errorf("a good story: %+v", v)
	}
	for name, c := range map[string]struct {
		change func([]entry) []entry
		lines  []line
		want   string
	}{
		"a body that meets its successor": {func(s []entry) []entry { s[3].At = 6; return s }, lines, "before the body of term 1 returned"},
		"a term that has no end":          {func(s []entry) []entry { return slices.Delete(s, 9, 10) }, lines, "term 2 has no end"},
		"an end without a beginning":      {func(s []entry) []entry { return slices.Delete(s, 0, 1) }, lines, "outside of term 1"},
		"two terms of one process":        {func(s []entry) []entry { s[4].ID = 1; return slices.Delete(s, 3, 4) }, lines, "before the last had ended"},
		"a process that vanishes":         {func(s []entry) []entry { return s[:11] }, lines, "process 2 did not end"},
		"goroutines":                      {func(s []entry) []entry { s[11].Note = "two"; return s }, lines, "left goroutines: two"},
		"a refusal without a reason":      {func(s []entry) []entry { return slices.Delete(s, 6, 7) }, lines, "refused a leader that was not frozen"},
		"tokens that fall":                {slices.Clone[[]entry], []line{{2, 1}, {1, 1}, {3, 1}}, "after line 1 of term 2"},
		"terms that alternate":            {slices.Clone[[]entry], []line{{1, 1}, {2, 1}, {3, 1}, {2, 2}}, "after line 1 of term 3"},
		"a line that is lost":             {slices.Clone[[]entry], []line{{1, 1}, {3, 1}}, "line 1 of term 2 was accepted and is lost"},
		"a line of nobody":                {slices.Clone[[]entry], []line{{1, 1}, {2, 1}, {4, 1}}, "never began"},
	} {
		if v := judge(c.change(story()), c.lines, drain); !strings.Contains(strings.Join(v.problems, "; "), c.want) {
			t.Errorf("%s: %q, want %q", name, v.problems, c.want)
		}
	}
}
