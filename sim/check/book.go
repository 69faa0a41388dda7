package check

import (
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
)

// An Applied is one entry of the log as one replica applied it.
type Applied struct {
	Node        uint64
	Index, Term uint64
	Entry       *command.Entry // nil for Raft's own entries
	Encoded     []byte         // Entry as it is in the log
	Output      *command.Output
}

// A Book is the committed log as an outsider sees it. The zero value is not usable: see [NewBook].
type Book struct {
	table    *table
	first    uint64 // index of the first entry of log
	log      []digest
	reads    map[string][]held
	renewals map[command.SessionID]renewal
	count    func(event string)
	top      struct { // the newest term in the log
		term  uint64
		since time.Duration // when its first entry was applied
	}
}

// A digest is what all replicas must agree on at one index.
type digest struct{ term, entry, output uint64 }

// NewBook returns the book of a cluster whose log begins after index start. count is called with
// the name of each noteworthy event; nil discards them.
func NewBook(start uint64, count func(event string)) *Book {
	if count == nil {
		count = func(string) {}
	}
	return &Book{
		table: newTable(), first: start + 1, reads: map[string][]held{},
		renewals: map[command.SessionID]renewal{}, count: count,
	}
}

// Last returns the highest index that any replica has applied.
func (b *Book) Last() uint64 { return b.first + uint64(len(b.log)) - 1 }

// Apply takes one entry that a replica applied at the time of the last SetNow. first reports
// whether no replica had applied that index before.
func (b *Book) Apply(a Applied) (first bool, v *Violation) {
	d := digest{term: a.Term, entry: sum(a.Encoded), output: outputDigest(a.Output)}
	switch last := b.Last(); {
	case a.Index <= last:
		return false, b.compare(a, d)
	case a.Index > last+1:
		return false, broken(Agreement, "node %x applied index %d, nobody has applied %d", a.Node, a.Index, last+1)
	}
	b.log = append(b.log, d)
	if a.Term > b.top.term {
		b.top.term, b.top.since = a.Term, b.table.now
	}
	if a.Entry == nil {
		return true, nil
	}
	return true, b.replay(a)
}

func (b *Book) compare(a Applied, d digest) *Violation {
	if a.Index < b.first {
		return broken(Agreement, "node %x applied index %d, the log begins at %d", a.Node, a.Index, b.first)
	}
	was := b.log[a.Index-b.first]
	switch {
	case was.term != d.term || was.entry != d.entry:
		return broken(Survival, "node %x applied another entry at %d: term %d for %d", a.Node, a.Index, d.term, was.term)
	case was.output != d.output:
		return broken(Agreement, "node %x got another output from the entry at %d than the first one", a.Node, a.Index)
	}
	return nil
}

func sum(b []byte) uint64 {
	d := digester(fnvOffset)
	h := uint64(d)
	for _, c := range b {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return h
}
