package etcdfence_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdfence"
	"github.com/lockstep-dev/lockstep/fence"
)

func TestOperationsOfTheUserAreInTheTransaction(t *testing.T) {
	r := open(t, startCluster(t), "x", etcdfence.Config{})
	commit := func(token lockstep.Token, value string) error {
		return r.Commit(t.Context(), "x", grant(token), fence.Write,
			clientv3.OpPut("app/a", value), clientv3.OpPut("app/b", value), clientv3.OpPut(r.DataKey("x"), value), clientv3.OpDelete("app/old/", clientv3.WithPrefix()))
	}
	must(t, commit(7, "seven"))
	must(t, r.Enter(t.Context(), grant(8)))
	if err := commit(7, "late"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("late: %v, want ErrStale", err)
	}
	for _, key := range []string{"app/a", "app/b", r.DataKey("x")} {
		answer, err := r.cli.Get(t.Context(), key)
		must(t, err)
		if len(answer.Kvs) != 1 || string(answer.Kvs[0].Value) != "seven" || answer.Kvs[0].ModRevision != answer.Kvs[0].CreateRevision {
			t.Errorf("%s holds %v, want what was written once", key, answer.Kvs)
		}
	}
}

func TestAStepIsOneTransactionOnceThereIsAMark(t *testing.T) {
	r := open(t, startCluster(t), "x", etcdfence.Config{})
	must(t, r.Write(t.Context(), grant(7), nil))
	if n := r.line.transactions(); n != 2 {
		t.Errorf("the first step took %d transactions, want 2", n)
	}
	for _, token := range []lockstep.Token{7, 8, 6, lockstep.MaxToken} {
		r.Write(t.Context(), grant(token), nil)
		if n := r.line.transactions(); n != 1 {
			t.Errorf("a write with token %d took %d transactions, want 1", token, n)
		}
	}
}

// TestTheFirstGrantBindsTheResource lets locks race for a resource without a mark: one of them gets
// it.
func TestTheFirstGrantBindsTheResource(t *testing.T) {
	c := startCluster(t)
	locks := []string{"a", "a b", "b", "report", "reports", "reports/1"}
	errs := make([]error, len(locks))
	var wg sync.WaitGroup
	for i, lock := range locks {
		r := open(t, c, "x", etcdfence.Config{})
		wg.Go(func() {
			errs[i] = r.Write(t.Context(), fence.Grant{Backend: "etcd:test", Lock: lock, Token: lockstep.Token(100 - i)}, []byte(lock))
		})
	}
	wg.Wait()
	value, err := open(t, c, "x", etcdfence.Config{}).Read(t.Context())
	must(t, err)
	for i, lock := range locks {
		if won := lock == string(value); won != (errs[i] == nil) || !won && !errors.Is(errs[i], fence.ErrForeign) {
			t.Errorf("lock %s: %v; the value is that of %s", lock, errs[i], value)
		}
	}
}

func TestResetGivesTheResourceToAnotherLock(t *testing.T) {
	r := open(t, startCluster(t), "x", etcdfence.Config{})
	must(t, r.Write(t.Context(), grant(lockstep.MaxToken), []byte("old")))
	moved := fence.Grant{Backend: "native:prod", Lock: "reports", Token: 1}
	if err := r.Write(t.Context(), moved, nil); !errors.Is(err, fence.ErrForeign) {
		t.Fatalf("another backend: %v", err)
	}
	to := fence.Mark{Backend: moved.Backend, Lock: moved.Lock}
	if err := r.Reset(t.Context(), "x", fence.Mark{}, to); !errors.Is(err, fence.ErrMoved) {
		t.Errorf("reset of a mark that is not there: %v", err)
	}
	present, err := r.Mark(t.Context(), "x")
	must(t, err)
	must(t, r.Reset(t.Context(), "x", present, to))
	must(t, r.Write(t.Context(), moved, []byte("new")))
	if err := r.Write(t.Context(), grant(lockstep.MaxToken), nil); !errors.Is(err, fence.ErrForeign) {
		t.Errorf("the lock before: %v", err)
	}
	must(t, r.Reset(t.Context(), "fresh", fence.Mark{}, to)) // bound before its first grant
}

func TestMarksThatCannotBeReadAdmitNobody(t *testing.T) {
	r := open(t, startCluster(t), "x", etcdfence.Config{})
	mark, written := "lockstep-fence/mark/x", "lockstep-fence/written/x"
	for name, content := range map[string][2]string{
		"one key of two":   {"etcd:test reports\n0000000000000007", ""},
		"the other of two": {"", "0000000000000007"},
		"garbage":          {"x", "0000000000000007"},
		"another number":   {"etcd:test reports\n7", "0000000000000007"},
	} {
		for i, key := range []string{mark, written} {
			r.cli.Delete(t.Context(), key)
			if content[i] != "" {
				r.cli.Put(t.Context(), key, content[i])
			}
		}
		if err := r.Write(t.Context(), grant(6), []byte("x")); err == nil || fence.Refused(err) {
			t.Errorf("%s: %v, want an error that is no verdict", name, err)
		}
	}
	if answer, err := r.cli.Get(t.Context(), r.DataKey("x")); err != nil || answer.Count != 0 {
		t.Errorf("data were written: %v, %v", answer, err)
	}
}

func TestErrorsSayWhatIsCertain(t *testing.T) {
	c := startCluster(t)
	r := open(t, c, "x", etcdfence.Config{})
	must(t, r.Write(t.Context(), grant(1), []byte("old")))
	r.line.meet(loseReply)
	if err := r.Write(t.Context(), grant(1), []byte("new")); !errors.Is(err, lockstep.ErrUncertain) {
		t.Errorf("a lost reply: %v, want ErrUncertain", err)
	}
	large := make([]byte, etcdfence.MaxValueBytes) // fits in a request
	must(t, r.Write(t.Context(), grant(1), large))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Write(ended, grant(1), nil); !errors.Is(err, context.Canceled) || errors.Is(err, lockstep.ErrUncertain) {
		t.Errorf("before the sending: %v, want Canceled", err)
	}
	c.Kill(0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := r.Write(ctx, grant(1), nil); !errors.Is(err, lockstep.ErrUncertain) {
		t.Errorf("no server: %v, want ErrUncertain", err)
	}
}

func TestBadInputIsRefusedBeforeAnythingIsSent(t *testing.T) {
	r := open(t, startCluster(t), "x", etcdfence.Config{})
	commit := func(ops ...clientv3.Op) error {
		return r.Commit(t.Context(), "x", grant(1), fence.Write, ops...)
	}
	for name, err := range map[string]error{
		"resource":             r.Guard.Write(t.Context(), "", grant(1), nil),
		"backend":              r.Guard.Write(t.Context(), "x", fence.Grant{Lock: "l", Token: 1}, nil),
		"value":                r.Guard.Write(t.Context(), "x", grant(1), make([]byte, etcdfence.MaxValueBytes+1)),
		"step":                 r.Commit(t.Context(), "x", grant(1), fence.Enter, clientv3.OpDelete("a")),
		"no ops":               commit(),
		"too many ops":         commit(make([]clientv3.Op, 121)...),
		"a read":               commit(clientv3.OpGet("a")),
		"a transaction":        commit(clientv3.OpTxn(nil, nil, nil)),
		"too many bytes":       commit(clientv3.OpPut("a", string(make([]byte, etcdfence.MaxValueBytes)))),
		"the mark":             commit(clientv3.OpDelete("lockstep-fence/mark/x")),
		"other data":           commit(clientv3.OpPut(r.DataKey("y"), "")),
		"all marks":            commit(clientv3.OpDelete("lockstep-fence/", clientv3.WithPrefix())),
		"a prefix of them":     commit(clientv3.OpDelete("lock", clientv3.WithPrefix())),
		"everything":           commit(clientv3.OpDelete("\x00", clientv3.WithFromKey())),
		"data and what's next": commit(clientv3.OpDelete(r.DataKey("x"), clientv3.WithPrefix())),
	} {
		if !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if n := r.line.transactions(); n != 0 {
		t.Errorf("%d transactions were sent", n)
	}
	must(t, commit(clientv3.OpDelete("lockstep-fence0"), clientv3.OpDelete("a", clientv3.WithRange("lockstep-fence/"))))
	for _, prefix := range []string{"a/", strings.Repeat("x", 257)} {
		if _, err := etcdfence.New(r.cli, etcdfence.Config{Prefix: prefix}); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("prefix %q: %v, want ErrInvalid", prefix, err)
		}
	}
	if _, err := etcdfence.New(nil, etcdfence.Config{}); !errors.Is(err, lockstep.ErrInvalid) {
		t.Errorf("no client: %v, want ErrInvalid", err)
	}
}

func TestObserverIsToldOfVerdicts(t *testing.T) {
	var counts fence.Counts
	r := open(t, startCluster(t), "x", etcdfence.Config{Observer: &counts})
	for _, token := range []lockstep.Token{7, 8, 7, 0} {
		r.Write(t.Context(), grant(token), nil)
	}
	if got, want := counts.Tally(), (fence.Tally{Accepted: 2, Stale: 1, NoToken: 1}); got != want {
		t.Errorf("tally %+v, want %+v", got, want)
	}
}
