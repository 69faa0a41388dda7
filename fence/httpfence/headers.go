package httpfence

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// The headers of a request; the package doc describes them.
const (
	TokenHeader   = "Lockstep-Token"
	LockHeader    = "Lockstep-Lock"
	BackendHeader = "Lockstep-Backend"
)

// SetGrant puts the grant into the headers of a request, replacing any grant there.
func SetGrant(h http.Header, g fence.Grant) {
	h.Set(TokenHeader, strconv.FormatUint(uint64(g.Token), 10))
	h.Set(LockHeader, (&url.URL{Path: g.Lock}).EscapedPath())
	h.Set(BackendHeader, g.Backend)
}

// ReadGrant reads the grant of a request. Without any of the headers there is no grant, which is
// the zero Grant and not an error. Malformed headers return [fence.ErrNoToken] or
// [lockstep.ErrInvalid].
func ReadGrant(h http.Header) (fence.Grant, error) {
	if !carriesGrant(h) {
		return fence.Grant{}, nil
	}
	var g fence.Grant
	text, err := only(h, TokenHeader)
	if err != nil {
		return g, err
	}
	if text == "" {
		return g, g.Check() // reports that there is no token
	}
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil || strconv.FormatUint(token, 10) != text {
		return g, malformed(TokenHeader, text, "must be a decimal number without sign or leading zeros")
	}
	g.Token = lockstep.Token(token)
	if g.Backend, err = only(h, BackendHeader); err != nil {
		return g, err
	}
	escaped, err := only(h, LockHeader)
	if err != nil {
		return g, err
	}
	if g.Lock, err = url.PathUnescape(escaped); err != nil {
		return g, malformed(LockHeader, escaped, "must be percent-encoded")
	}
	return g, g.Check()
}

func carriesGrant(h http.Header) bool {
	return len(h.Values(TokenHeader))+len(h.Values(LockHeader))+len(h.Values(BackendHeader)) > 0
}

// only returns the single value of a header, or nothing. If there are two, it is unclear which one
// is meant.
func only(h http.Header, name string) (string, error) {
	values := h.Values(name)
	if len(values) > 1 {
		return "", malformed(name, values[1], "must be sent once")
	}
	return h.Get(name), nil
}

func malformed(header, value, rule string) error {
	return &lockstep.InvalidError{Field: header, Value: lockstep.Excerpt(value), Rule: rule}
}
