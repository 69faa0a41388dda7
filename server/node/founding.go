package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/transport"
)

const (
	// askEvery is the pause between two rounds of asking the other initial members.
	askEvery = 200 * time.Millisecond
	// noteAfter is when a wait is first logged, and noteEvery the interval after that, also for
	// other persistent problems.
	noteAfter = time.Second
	noteEvery = 30 * time.Second
)

// rootless stands for the birth of a cluster that has none.
const rootless = "without a birth"

// An answer is what an initial member says to a node with a fresh directory.
type answer struct {
	id  transport.Identity // zero: it has not proved its identity
	err error              // nil: it knows nothing against us
}

// birth returns the birth of the member's cluster, rootless, or "".
func (a answer) birth() string {
	if a.id.Rootless {
		return rootless
	}
	return a.id.Birth
}

// A founding decides when a node with a fresh directory may take part. The node has no past that it
// knows of, but a lost directory looks the same, so it asks every initial member.
//
//   - As long as none of them has a past, all of them must have said so, except those that the
//     operator has declared missing. A majority is not enough: it may consist of nodes whose disks
//     were wiped, or that never met the others.
//   - If the cluster has begun, a majority of all members, not counting this one, must be of one
//     birth and not know this node.
//   - A member that knows this node under another directory keeps it from beginning.
type founding struct {
	others  []MemberStatus
	missing []string        // names
	agreed  map[uint64]bool // has said once that it has no past and knows nothing against us
}

// A decision is the result of a round of answers.
type decision struct {
	begin   bool
	birth   string // with begin: of the cluster that has begun; empty, or rootless, for none
	end     error  // a majority says that this node must not take part
	waiting string // which members keep it waiting, and why
}

// enough returns how many others must agree to decide about a node of a cluster with this many
// voters: a majority of all of them, or all of the others.
func enough(voters, others int) int { return max(1, min(voters/2+1, others)) }

// decide takes one answer from each of the others, in their order.
func (f *founding) decide(answers []answer) decision {
	vouch, against := map[string]int{}, map[transport.Verdict]int{}
	var waiting []string
	for i, m := range f.others {
		a := answers[i]
		switch v := transport.VerdictOf(a.err); {
		case a.err == nil && a.birth() != "":
			vouch[a.birth()]++
		case a.err == nil:
			f.agreed[m.ID] = true
		case v != 0:
			against[v]++
		}
		if why := f.lacks(m, a); why != "" {
			waiting = append(waiting, fmt.Sprintf("%s (%s) %s", m.Name, m.PeerAddress, why))
		}
	}
	need := enough(len(f.others)+1, len(f.others))
	for birth, count := range vouch {
		if count >= need && !f.opposed(answers, birth) {
			return decision{begin: true, birth: birth}
		}
	}
	for v, err := range map[transport.Verdict]error{transport.Removed: ErrRemoved, transport.Replaced: ErrReplaced} {
		if against[v] >= need {
			return decision{end: fmt.Errorf("%w: %s", err, strings.Join(waiting, "; "))}
		}
	}
	if len(waiting) == 0 {
		return decision{begin: true}
	}
	return decision{waiting: strings.Join(waiting, "; ")}
}

// opposed reports whether a member refuses this node, not counting members of another birth.
func (f *founding) opposed(answers []answer, birth string) bool {
	return slices.ContainsFunc(answers, func(a answer) bool {
		return transport.VerdictOf(a.err) != 0 && (a.birth() == "" || a.birth() == birth)
	})
}

// lacks returns why a member's answer does not let a new cluster begin, or "".
func (f *founding) lacks(m MemberStatus, a answer) string {
	switch {
	case a.err == nil && a.birth() != "":
		return fmt.Sprintf("already belongs to cluster %s, but more members must confirm that", a.birth())
	case transport.VerdictOf(a.err) != 0:
		return "rejects this node: " + a.err.Error()
	case f.agreed[m.ID], slices.Contains(f.missing, m.Name) && a.id.Name == "":
		return ""
	}
	return fmt.Sprintf("has not answered: %v", a.err)
}

// found asks the others whether this node may take part, until it may. It returns the birth of the
// cluster if that has begun.
func (n *Node) found(ctx context.Context) (birth command.BirthID, err error) {
	f := founding{missing: n.cfg.Missing, agreed: map[uint64]bool{}}
	for _, m := range n.members {
		if !m.Self {
			f.others = append(f.others, m)
		}
	}
	defer n.waits.Store(nil)
	for began := time.Now(); ; {
		d := f.decide(n.askAll(ctx, f.others))
		switch {
		case ctx.Err() != nil:
			return birth, nil
		case d.end != nil:
			return birth, d.end
		case d.begin && d.birth != "" && d.birth != rootless:
			n.log.Info("the cluster was started without this node, which now joins it", "birth", d.birth)
			return parseBirth(d.birth)
		case d.begin:
			return birth, nil
		}
		n.waits.Store(&d.waiting)
		if time.Since(began) >= noteAfter && n.notes.due("founding") {
			n.log.Warn("new data directory: waiting for the other initial members",
				"waiting for", d.waiting, "remedy", "start them; list those that do not exist in --initial-missing")
		}
		select {
		case <-ctx.Done():
			return birth, nil
		case <-time.After(askEvery):
		}
	}
}

// askAll asks all of them at once.
func (n *Node) askAll(ctx context.Context, others []MemberStatus) []answer {
	answers := make([]answer, len(others))
	var wg sync.WaitGroup
	for i, m := range others {
		wg.Go(func() { answers[i].id, answers[i].err = n.transport.Ask(ctx, m.ID) })
	}
	wg.Wait()
	return answers
}

// notes limits how often a persistent problem is logged.
type notes struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// maxNotes bounds the number of problems remembered.
const maxNotes = 256

// due reports whether the problem named by key is to be logged now.
func (n *notes) due(key string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if now.Sub(n.last[key]) < noteEvery {
		return false
	}
	if n.last == nil || len(n.last) >= maxNotes {
		n.last = make(map[string]time.Time)
	}
	n.last[key] = now
	return true
}
