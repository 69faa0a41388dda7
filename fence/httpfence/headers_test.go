package httpfence

import (
	"errors"
	"net/http"
	"testing"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

func TestGrantsPassThroughHeaders(t *testing.T) {
	for _, g := range []fence.Grant{
		grant(7), grant(lockstep.MaxToken),
		{Backend: "etcd:a.b:2379/x", Lock: `a b/%2F,"ü"/日本?#;`, Token: 1},
	} {
		h := http.Header{}
		SetGrant(h, grant(99))
		SetGrant(h, g)
		got, err := ReadGrant(h)
		if err != nil || got != g {
			t.Errorf("%+v became %+v, %v, by %q", g, got, err, h)
		}
		for _, name := range []string{TokenHeader, LockHeader, BackendHeader} {
			for _, c := range []byte(h.Get(name)) {
				if c <= ' ' || c > '~' {
					t.Errorf("%s is %q, want visible ASCII", name, h.Get(name))
				}
			}
		}
	}
}

func TestBadHeadersAreRefused(t *testing.T) {
	good := map[string]string{TokenHeader: "7", LockHeader: "orders/42", BackendHeader: "native:prod"}
	tests := []struct {
		name          string
		header, value string
		want          error
	}{
		{"no token", TokenHeader, "", fence.ErrNoToken},
		{"zero", TokenHeader, "0", fence.ErrNoToken},
		{"a negative token", TokenHeader, "-7", lockstep.ErrInvalid},
		{"a sign", TokenHeader, "+7", lockstep.ErrInvalid},
		{"leading zeros", TokenHeader, "007", lockstep.ErrInvalid},
		{"a fraction", TokenHeader, "7.0", lockstep.ErrInvalid},
		{"hexadecimal", TokenHeader, "0x7", lockstep.ErrInvalid},
		{"two tokens in one", TokenHeader, "7, 8", lockstep.ErrInvalid},
		{"a token above the largest", TokenHeader, "9007199254740992", lockstep.ErrInvalid},
		{"a token of more than 64 bits", TokenHeader, "18446744073709551617", lockstep.ErrInvalid},
		{"no lock", LockHeader, "", lockstep.ErrInvalid},
		{"a bad lock", LockHeader, "a//b", lockstep.ErrInvalid},
		{"a bad escape", LockHeader, "a%zz", lockstep.ErrInvalid},
		{"an escaped control character", LockHeader, "a%0Ab", lockstep.ErrInvalid},
		{"no backend", BackendHeader, "", lockstep.ErrInvalid},
		{"a bad backend", BackendHeader, "a b", lockstep.ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			for name, value := range good {
				h.Set(name, value)
			}
			h.Set(tt.header, tt.value)
			if tt.value == "" {
				h.Del(tt.header)
			}
			if _, err := ReadGrant(h); !errors.Is(err, tt.want) {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
		})
	}
	for name := range good {
		h := http.Header{}
		for name, value := range good {
			h.Set(name, value)
		}
		h.Add(name, good[name])
		if _, err := ReadGrant(h); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("%s twice: %v, want ErrInvalid", name, err)
		}
	}
	if g, err := ReadGrant(http.Header{}); err != nil || g != (fence.Grant{}) {
		t.Errorf("no headers: %+v, %v, want none and no error", g, err)
	}
}

func FuzzReadGrant(f *testing.F) {
	f.Add("7", "orders/42", "native:prod")
	f.Add("0", "%", "")
	f.Fuzz(func(t *testing.T, token, lock, backend string) {
		h := http.Header{TokenHeader: {token}, LockHeader: {lock}, BackendHeader: {backend}}
		g, err := ReadGrant(h)
		if err != nil {
			if !fence.Refused(err) {
				t.Errorf("%v is no verdict", err)
			}
			return
		}
		again := http.Header{}
		SetGrant(again, g)
		if got, err := ReadGrant(again); err != nil || got != g {
			t.Errorf("%+v became %+v, %v", g, got, err)
		}
	})
}
