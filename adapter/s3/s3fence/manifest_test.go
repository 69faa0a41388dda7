package s3fence

import (
	"slices"
	"testing"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

func TestWhatAChangeLeavesToBeRemoved(t *testing.T) {
	mark := fence.Mark{Backend: "b", Lock: "l", Token: 7, Written: 7}
	for _, tt := range []struct {
		name     string
		data     string
		previous string
		change   change
		want     [2]string // data and previous
		dead     []string
	}{
		{"the first write", "", "", change{replaceData, "a"}, [2]string{"a", ""}, nil},
		{"the second keeps the first for readers", "a", "", change{replaceData, "b"}, [2]string{"b", "a"}, nil},
		{"the third removes the first", "b", "a", change{replaceData, "c"}, [2]string{"c", "b"}, []string{"a"}},
		{"the same data again", "b", "a", change{replaceData, "b"}, [2]string{"b", "a"}, nil},
		{"the data before again", "b", "a", change{replaceData, "a"}, [2]string{"a", "b"}, nil},
		{"entering", "b", "a", change{}, [2]string{"b", "a"}, nil},
		{"deleting", "b", "a", change{kind: removeData}, [2]string{"", ""}, []string{"b", "a"}},
		{"deleting nothing", "", "", change{kind: removeData}, [2]string{"", ""}, nil},
	} {
		next, dead := manifest{Data: tt.data, Previous: tt.previous}.after(mark, fence.Write, tt.change, "n")
		if got := [2]string{next.Data, next.Previous}; got != tt.want || !slices.Equal(dead, tt.dead) {
			t.Errorf("%s: %q, dead %q, want %q, dead %q", tt.name, got, dead, tt.want, tt.dead)
		}
		if next.Mark != mark || next.Format != format || !next.bears("n") {
			t.Errorf("%s: %+v", tt.name, next)
		}
	}
}

func TestAnEntryCarriesTheNonceOfTheWriteOn(t *testing.T) {
	var m manifest
	grant := func(token lockstep.Token) fence.Grant {
		return fence.Grant{Backend: "b", Lock: "l", Token: token}
	}
	take := func(token lockstep.Token, s fence.Step, c change, nonce string) {
		t.Helper()
		next, _, err := m.take(grant(token), s, c, nonce)
		if err != nil {
			t.Fatal(err)
		}
		m = next
	}
	take(1, fence.Write, change{replaceData, "a"}, "first")
	take(2, fence.Enter, change{}, "entry")
	if !m.bears("first") || !m.bears("entry") {
		t.Errorf("%+v", m)
	}
	before := m
	take(2, fence.Enter, change{}, "again")
	if m != before {
		t.Errorf("an entry that changes nothing made %+v of %+v", m, before)
	}
	take(2, fence.Write, change{replaceData, "b"}, "second")
	if m.bears("first") || m.bears("entry") || !m.bears("second") {
		t.Errorf("%+v", m)
	}
}

func TestAManifestIsReadAsItWasWritten(t *testing.T) {
	k := keysOf("p", "r")
	grant := fence.Grant{Backend: "b", Lock: "l", Token: lockstep.MaxToken}
	want, _, err := manifest{}.take(grant, fence.Write, change{replaceData, k.dataKey(grant.Token, "n")}, "n")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decode(want.encode(), k); err != nil || got != want {
		t.Errorf("read %+v, %v, want %+v", got, err, want)
	}
	if _, err := decode(want.encode(), keysOf("p", "r2")); err == nil {
		t.Error("the manifest of another resource was read")
	}
}

func TestAKeyOfDataTellsItsToken(t *testing.T) {
	k := keysOf("p", "r")
	if token, ok := k.token(k.dataKey(42, "NONCE")); !ok || token != 42 {
		t.Errorf("token %d, %v", token, ok)
	}
	for _, key := range []string{
		"", "p/r/_data/", "p/r/_data/42-N", "p/r/_data/0000000000000042", "p/r/_data/0000000000000042-", "p/r/_data/0000000000000042-a/b",
		"p/r/_data/0000000000000000-N", "p/r/_data/9999999999999999-N", "p/r2/_data/0000000000000042-N", "p/r/_manifest",
	} {
		if token, ok := k.token(key); ok {
			t.Errorf("%q is taken for data of token %d", key, token)
		}
	}
}

func FuzzDecode(f *testing.F) {
	k := keysOf("p", "r")
	f.Add(manifest{Format: 1, Mark: fence.Mark{Backend: "b", Lock: "l", Token: 1}, Nonce: "n", Data: k.dataKey(1, "n")}.encode())
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := decode(text, k)
		if err != nil {
			if fence.Refused(err) {
				t.Errorf("a verdict: %v", err)
			}
			return
		}
		if again, err := decode(m.encode(), k); err != nil || again != m {
			t.Errorf("%+v is read again as %+v, %v", m, again, err)
		}
	})
}
