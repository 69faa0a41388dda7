package etcdlock

import (
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockstep-dev/lockstep"
)

func exclusive(created int64) entry { return entry{created: created, lease: 7} }

func shared(created int64, token lockstep.Token) entry {
	return entry{created: created, lease: 7, shared: true, record: record{Token: token}}
}

func TestTheHoldersAreThoseAtTheHeadThatFitTogether(t *testing.T) {
	for _, test := range []struct {
		name            string
		queue           queue
		tokens          []lockstep.Token // of the holders
		waiters, placed int              // placed is the position of the next claim
	}{
		{"nobody", nil, nil, 0, 1},
		{"an exclusive claim holds alone", queue{exclusive(5), exclusive(6), shared(7, 0)}, []lockstep.Token{5}, 2, 3},
		{"an exclusive claim waits for shared ones", queue{shared(5, 0), exclusive(6)}, []lockstep.Token{5}, 1, 2},
		{"a shared claim does not pass an exclusive one", queue{shared(5, 0), exclusive(6), shared(7, 0)}, []lockstep.Token{5}, 2, 3},
		{"shared claims have the token of the first", queue{shared(5, 3), shared(6, 3), shared(9, 3)}, []lockstep.Token{3, 3, 3}, 0, 1},
		{"a shared claim that has not written its token yet", queue{shared(5, 3), shared(6, 0)}, []lockstep.Token{3, 3}, 0, 1},
		{"the first one's token is its create revision", queue{shared(5, 0), shared(6, 0)}, []lockstep.Token{5, 5}, 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := test.queue.state("x", 20)
			if len(s.Holders) != len(test.tokens) || len(s.Waiters) != test.waiters {
				t.Fatalf("%d holders and %d waiters, want %d and %d", len(s.Holders), len(s.Waiters), len(test.tokens), test.waiters)
			}
			for i, h := range s.Holders {
				if h.Token != test.tokens[i] || h.Owner != "0000000000000007" {
					t.Errorf("holder %d: token %d of %s, want %d", i, h.Token, h.Owner, test.tokens[i])
				}
			}
			for _, w := range s.Waiters {
				if w.Token != 0 {
					t.Errorf("a waiter has token %d", w.Token)
				}
			}
			if s.NextToken != 21 || s.Name != "x" {
				t.Errorf("next token %d of %q", s.NextToken, s.Name)
			}
			if busy := test.queue.busy(len(test.queue)); busy.Position != test.placed || len(busy.Holders) != len(test.tokens) {
				t.Errorf("a busy error with %d holders and position %d, want %d", len(busy.Holders), busy.Position, test.placed)
			}
		})
	}
}

func TestNoNamesKeyIsBelowThatOfAnother(t *testing.T) {
	cfg := Config{}.withDefaults()
	names := []string{"a", "a/b", "a%2Fb", "a%2fb", "a/x", "a b", "a+b", "ab", "A", "é", "e\u0301"}
	for _, name := range names {
		key := cfg.key(name, lockstep.Shared, "1")
		for _, other := range names {
			_, below := readEntry(cfg.root(other), &mvccpb.KeyValue{Key: []byte(key)})
			if below != (name == other) {
				t.Errorf("key %q of %q is below %q: %v", key, name, cfg.root(other), below)
			}
		}
	}
	if _, below := readEntry(cfg.root("a"), &mvccpb.KeyValue{Key: []byte(cfg.sessionKey(1))}); below {
		t.Error("the key of a session is that of a lock")
	}
}

func TestAValueThatSomebodyElseWroteIsAnEmptyClaim(t *testing.T) {
	kv := &mvccpb.KeyValue{Key: []byte("p/x/1"), Value: []byte("{\"token\":\"no number\"}"), CreateRevision: 4, Lease: 2}
	e, ok := readEntry("p/", kv)
	if !ok || e.token() != 4 || e.lease != 2 || e.shared || e.record.Metadata != nil {
		t.Errorf("entry %+v, ok %v", e, ok)
	}
	kv.Key = []byte("p/other")
	if _, ok := readEntry("p/", kv); ok {
		t.Error("a key that is neither exclusive nor shared is a claim")
	}
}
