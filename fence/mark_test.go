package fence

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep"
)

func grant(token lockstep.Token) Grant {
	return Grant{Backend: "memory:test", Lock: "orders/42", Token: token}
}

func mark(token, written lockstep.Token) Mark {
	return Mark{Backend: "memory:test", Lock: "orders/42", Token: token, Written: written}
}

func TestAdmit(t *testing.T) {
	tests := []struct {
		name string
		mark Mark
		g    Grant
		step Step
		want Mark
		err  error
	}{
		{"the first grant binds the resource", Mark{}, grant(7), Write, mark(7, 7), nil},
		{"the first grant may only enter", Mark{}, grant(7), Enter, mark(7, 0), nil},
		{"a resource may be bound before its first grant", mark(0, 0), grant(1), Write, mark(1, 1), nil},
		{"a larger token raises the mark", mark(7, 7), grant(9), Write, mark(9, 9), nil},
		{"entering raises the mark and is no write", mark(7, 7), grant(9), Enter, mark(9, 7), nil},
		{"an equal token writes again", mark(7, 7), grant(7), Write, mark(7, 7), nil},
		{"an equal token enters again", mark(7, 7), grant(7), Enter, mark(7, 7), nil},
		{"a smaller token is stale", mark(7, 7), grant(6), Write, mark(7, 7), ErrStale},
		{"a smaller token does not enter", mark(7, 7), grant(6), Enter, mark(7, 7), ErrStale},
		{"a smaller token is stale after an enter", mark(7, 6), grant(6), Write, mark(7, 6), ErrStale},
		{"once: a larger token is admitted", mark(7, 7), grant(8), WriteOnce, mark(8, 8), nil},
		{"once: entering has not used it up", mark(7, 5), grant(7), WriteOnce, mark(7, 7), nil},
		{"once: an equal token has been here", mark(7, 7), grant(7), WriteOnce, mark(7, 7), ErrAlready},
		{"once: a smaller token is stale", mark(7, 7), grant(6), WriteOnce, mark(7, 7), ErrStale},
		{"once: a retry learns of its write although a later holder entered", mark(8, 7), grant(7), WriteOnce, mark(8, 7), ErrAlready},
		{"once: any write of the grant counts", mark(7, 7), grant(7), WriteOnce, mark(7, 7), ErrAlready},
		{"another lock is foreign however large its token", mark(7, 7), Grant{"memory:test", "orders/43", 99}, Write, mark(7, 7), ErrForeign},
		{"another backend is foreign", mark(7, 7), Grant{"memory:other", "orders/42", 99}, Write, mark(7, 7), ErrForeign},
		{"another lock does not enter", mark(7, 7), Grant{"memory:test", "orders/43", 99}, Enter, mark(7, 7), ErrForeign},
		{"another lock has not written once", mark(7, 7), Grant{"memory:test", "orders/43", 7}, WriteOnce, mark(7, 7), ErrForeign},
		{"zero is no token", Mark{}, grant(0), Write, Mark{}, ErrNoToken},
		{"nothing at all is no token", mark(7, 7), Grant{}, Enter, mark(7, 7), ErrNoToken},
		{"the largest token is one", Mark{}, grant(lockstep.MaxToken), Write, mark(lockstep.MaxToken, lockstep.MaxToken), nil},
		{"a token above the largest is none", mark(7, 7), grant(lockstep.MaxToken + 1), Write, mark(7, 7), lockstep.ErrInvalid},
		{"a grant without a backend is invalid", Mark{}, Grant{"", "orders/42", 7}, Write, Mark{}, lockstep.ErrInvalid},
		{"a grant with a bad lock name is invalid", Mark{}, Grant{"memory:test", "/", 7}, Write, Mark{}, lockstep.ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.mark.Admit(tt.g, tt.step)
			if got != tt.want || !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
				t.Errorf("mark %+v, %v, want %+v, %v", got, err, tt.want, tt.err)
			}
			if err != nil && !Refused(err) {
				t.Errorf("%v does not count as refused", err)
			}
		})
	}
}

func TestARefusalCarriesBothTokensAndSaysWhatToDo(t *testing.T) {
	for step, want := range map[Step][]string{
		Write:     {"token 7", "seen 9", "orders/42", "do not retry"},
		WriteOnce: {"token 9", "do not repeat"},
	} {
		g := grant(7)
		if step == WriteOnce {
			g = grant(9)
		}
		_, err := mark(9, 9).Admit(g, step)
		refused, ok := errors.AsType[*RefusedError](err)
		if !ok || refused.Grant != g || refused.Mark != mark(9, 9) {
			t.Fatalf("%v: refused with %+v", step, err)
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v: %q does not say %q", step, err, part)
			}
		}
	}
}

// TestTokensNeverFall plays long random games, with every kind of grant.
func TestTokensNeverFall(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var m Mark
		written := map[lockstep.Token]bool{}
		for range 200 {
			g, s := grant(lockstep.Token(random.IntN(40))), Step(1+random.IntN(3))
			if random.IntN(5) == 0 {
				g.Lock = "orders/other"
			}
			next, err := m.Admit(g, s)
			switch {
			case err != nil && next != m:
				t.Fatalf("seed %d: a refusal made %+v of %+v", seed, next, m)
			case err == nil && (next.Token < m.Token || next.Token != g.Token || m.Bound() && next.Lock != m.Lock):
				t.Fatalf("seed %d: %v of %+v made %+v of %+v", seed, s, g, next, m)
			case err == nil && s == WriteOnce && written[g.Token]:
				t.Fatalf("seed %d: %d wrote once after it had written", seed, g.Token)
			}
			if err == nil && s != Enter {
				written[g.Token] = true
			}
			m = next
		}
	}
}

func TestAnUnknownStepIsABug(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Mark{}.Admit(grant(1), 0)
}

func TestReset(t *testing.T) {
	moved := Mark{Backend: "memory:new", Lock: "orders/42"}
	tests := []struct {
		name     string
		from, to Mark
		err      error
	}{
		{"to another backend", mark(9, 9), moved, nil},
		{"to another lock with a first token", mark(9, 9), Mark{Backend: "memory:test", Lock: "orders/43", Token: 3}, nil},
		{"of a mark that has moved on", mark(8, 8), moved, ErrMoved},
		{"to the same lock", mark(9, 9), mark(1, 0), lockstep.ErrInvalid},
		{"to nothing", mark(9, 9), Mark{}, lockstep.ErrInvalid},
		{"to a bad lock", mark(9, 9), Mark{Backend: "memory:new", Lock: "/"}, lockstep.ErrInvalid},
		{"to a bad token", mark(9, 9), Mark{Backend: "memory:new", Lock: "a", Token: lockstep.MaxToken + 1}, lockstep.ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := mark(9, 9).Reset(tt.from, tt.to)
			want := tt.to
			if tt.err != nil {
				want = mark(9, 9)
			}
			if got != want || !errors.Is(err, tt.err) {
				t.Errorf("%+v, %v, want %+v, %v", got, err, want, tt.err)
			}
		})
	}
	if _, err := (Mark{Backend: "memory:new", Lock: "orders/42"}).Admit(grant(99), Write); !errors.Is(err, ErrForeign) {
		t.Errorf("a grant of the old backend after the reset: %v, want ErrForeign", err)
	}
}

func TestAMarkIsReadAsItWasWritten(t *testing.T) {
	for _, m := range []Mark{{}, mark(0, 0), mark(lockstep.MaxToken, 7), {Backend: "etcd:a.b:2379/x", Lock: `ü "x"/日本`, Token: 3}} {
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var got Mark
		if err := json.Unmarshal(text, &got); err != nil || got != m {
			t.Errorf("%s was read as %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		`{"backend":"a","lock":"b","token":"1","written":"2"}`,
		`{"backend":"a","lock":"b","token":"9007199254740992","written":"0"}`,
		`{"backend":"","lock":"b","token":"1","written":"0"}`,
		`{"backend":"a","lock":"//","token":"1","written":"0"}`,
		`{"backend":"a","lock":"b","token":"-1","written":"0"}`,
		`[]`, `{`,
	} {
		if err := json.Unmarshal([]byte(text), new(Mark)); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}

func FuzzMarkJSON(f *testing.F) {
	f.Add([]byte(`{"backend":"a","lock":"b","token":"2","written":"1"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var m Mark
		if json.Unmarshal(text, &m) != nil {
			return
		}
		again, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var got Mark
		if err := json.Unmarshal(again, &got); err != nil || got != m {
			t.Errorf("%+v became %+v, %v", m, got, err)
		}
	})
}

func BenchmarkAdmit(b *testing.B) {
	m := mark(7, 7)
	for range b.N {
		m, _ = m.Admit(grant(8), Write)
	}
}
