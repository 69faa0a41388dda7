package fence

import (
	"fmt"
	"slices"

	"github.com/lockstep-dev/lockstep"
)

// MaxBackendBytes bounds the id of a backend.
const MaxBackendBytes = 128

// A Grant is what a writer presents to a guard: which lock of which backend it holds, and its
// token. [Source] creates it; guards read it from a request. The zero Grant is that of a writer
// without a lock, and is refused.
type Grant struct {
	// Backend is the id of the cluster that issued the token: see [For].
	Backend string
	// Lock is the lock name.
	Lock string
	// Token is 1 to [lockstep.MaxToken].
	Token lockstep.Token
}

// Check reports why every guard would refuse the grant, or nil: a [*RefusedError] with [ErrNoToken]
// for token zero, or a [*lockstep.InvalidError].
func (g Grant) Check() error {
	switch {
	case g.Token == 0:
		return &RefusedError{Reason: ErrNoToken, Grant: g}
	case g.Token > lockstep.MaxToken:
		return &lockstep.InvalidError{Field: "token", Value: fmt.Sprint(uint64(g.Token)), Rule: fmt.Sprintf("must be 1 to %d", lockstep.MaxToken)}
	}
	if err := CheckBackend(g.Backend); err != nil {
		return err
	}
	return lockstep.CheckName(g.Lock)
}

// CheckBackend returns a [*lockstep.InvalidError] with the rule that the id of a backend breaks, or
// nil. An id is 1 to [MaxBackendBytes] bytes of letters a-z and A-Z, digits, and the characters ".
// _ : / @ -".
func CheckBackend(id string) error {
	broken := func(rule string) error {
		return &lockstep.InvalidError{Field: "backend", Value: lockstep.Excerpt(id), Rule: rule}
	}
	switch {
	case id == "":
		return &lockstep.InvalidError{Field: "backend", Rule: "must not be empty: it tells the tokens of one cluster from those of another"}
	case len(id) > MaxBackendBytes:
		return broken(fmt.Sprintf("is %d bytes long, the limit is %d", len(id), MaxBackendBytes))
	}
	for _, c := range []byte(id) {
		if !backendCharacter(c) {
			return broken(`must be letters a-z, digits and ". _ : / @ -"`)
		}
	}
	return nil
}

func backendCharacter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		slices.Contains([]byte("._:/@-"), c)
}

// A Source makes the grants of one lock name of one backend. It is a value that may be
// copied and used concurrently. [For] makes it; the grants of the zero Source are
// refused.
type Source struct{ backend, lock string }

// For returns the Source for grants of the named lock. Call it when the program starts: it refuses
// a backend that is not [lockstep.Capabilities.Fenced] with [lockstep.ErrUnsupported], and a bad
// name with [lockstep.ErrInvalid].
//
// cluster distinguishes this cluster from others of the same kind, such as "prod": 1 to 100 bytes
// of the characters that [CheckBackend] allows. Marks store it, so all programs must use the same
// value. People choose it; the backend does not generate it. It must stay the same when the cluster
// is restored from a backup, which keeps its tokens rising, and must change when the programs move
// to another cluster, which does not.
func For(locker lockstep.Locker, cluster, name string) (Source, error) {
	caps := locker.Capabilities()
	if !caps.Fenced {
		return Source{}, fmt.Errorf("%w: the tokens of backend %q do not rise from holder to holder, so no guard can go by them; use one that is Fenced",
			lockstep.ErrUnsupported, caps.Backend)
	}
	if cluster == "" || len(cluster) > 100 {
		return Source{}, &lockstep.InvalidError{Field: "cluster", Value: lockstep.Excerpt(cluster), Rule: "must be 1 to 100 bytes long"}
	}
	s := Source{backend: caps.Backend + ":" + cluster, lock: name}
	if err := CheckBackend(s.backend); err != nil {
		return Source{}, err
	}
	if err := lockstep.CheckName(name); err != nil {
		return Source{}, err
	}
	return s, nil
}

// Backend is the id that the marks store, such as "native:prod".
func (s Source) Backend() string { return s.backend }

// Lock is the lock name.
func (s Source) Lock() string { return s.lock }

// Grant is the grant with this token, which [lockstep.Do] passes to its function.
func (s Source) Grant(token lockstep.Token) Grant {
	return Grant{Backend: s.backend, Lock: s.lock, Token: token}
}

// GrantOf is the grant of a lock that was acquired from the same Locker. It refuses a lock on other
// names with [lockstep.ErrInvalid], and one without a token, such as permits of a semaphore, with
// [ErrNoToken].
func (s Source) GrantOf(l lockstep.Lock) (Grant, error) {
	if !slices.Contains(l.Names(), s.lock) {
		return Grant{}, &lockstep.InvalidError{Field: "lock", Value: lockstep.Excerpt(l.Name()), Rule: "must hold " + lockstep.Excerpt(s.lock) + ", to which the resource belongs"}
	}
	g := s.Grant(l.Token())
	return g, g.Check()
}
