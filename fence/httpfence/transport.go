package httpfence

import (
	"fmt"
	"net/http"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// A Transport is an [http.RoundTripper] that sends the grant of a held lock with each request. Once
// the lock is over it sends nothing and returns the reason, which saves the server a refusal but
// does not replace its check. Use it only for the guarded service: it sends the headers to every
// host. It is safe for concurrent use.
type Transport struct {
	base  http.RoundTripper
	lock  lockstep.Lock
	grant fence.Grant
}

var _ http.RoundTripper = (*Transport)(nil)

// NewTransport returns a Transport over base; nil means [http.DefaultTransport]. The lock must
// match the source: see [fence.Source.GrantOf].
func NewTransport(base http.RoundTripper, source fence.Source, lock lockstep.Lock) (*Transport, error) {
	g, err := source.GrantOf(lock)
	if err != nil {
		return nil, err
	}
	if base == nil {
		base = http.DefaultTransport
	}
	return &Transport{base: base, lock: lock, grant: g}, nil
}

// RoundTrip implements [http.RoundTripper]. The request is not changed.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.lock.Check(); err != nil {
		if r.Body != nil {
			r.Body.Close() // as required of a RoundTripper
		}
		return nil, fmt.Errorf("send nothing under lock %s: %w", t.grant.Lock, err)
	}
	r = r.Clone(r.Context())
	SetGrant(r.Header, t.grant)
	if r.Header.Get("Cache-Control") == "" {
		r.Header.Set("Cache-Control", "no-cache") // a cache must not answer: the server has to see the token
	}
	return t.base.RoundTrip(r)
}
