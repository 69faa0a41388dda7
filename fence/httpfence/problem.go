package httpfence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// problemType is the media type of a [Problem].
const problemType = "application/problem+json"

// typePrefix is the common prefix of problem types. They name a kind and cannot be dereferenced.
const typePrefix = "urn:lockstep:fence:"

// A Problem is the body of a refusal. Tokens are strings because JSON readers lose digits of large
// numbers.
type Problem struct {
	// Type is "urn:lockstep:fence:" and the kind that the package doc lists, such as
	// "urn:lockstep:fence:stale".
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what to do next.
	Detail string `json:"detail,omitempty"`

	// Token, Lock and Backend are what the request carried.
	Token   lockstep.Token `json:"token,string,omitempty"`
	Lock    string         `json:"lock,omitempty"`
	Backend string         `json:"backend,omitempty"`

	// Seen, SeenLock and SeenBackend are what the resource has seen.
	Seen        lockstep.Token `json:"seen,string,omitempty"`
	SeenLock    string         `json:"seen_lock,omitempty"`
	SeenBackend string         `json:"seen_backend,omitempty"`
}

// A kind is a row of the table of refusals.
type kind struct {
	err    error
	name   string
	status int
	title  string
	detail string // instead of the error's own text
}

// kinds are searched from the top.
var kinds = []kind{
	{fence.ErrStale, "stale", http.StatusPreconditionFailed, "The token is older than one seen here", ""},
	{fence.ErrAlready, "already", http.StatusPreconditionFailed, "The grant has been here already",
		"a request of this grant was admitted before, and the work is to be done once: do not repeat it, look at the resource"},
	{fence.ErrForeign, "foreign", http.StatusPreconditionFailed, "The resource belongs to another lock", ""},
	{fence.ErrNoToken, "no-token", http.StatusPreconditionRequired, "The request carries no fencing token", ""},
	{lockstep.ErrInvalid, "invalid", http.StatusBadRequest, "The request is malformed", ""},
	{fence.ErrBusy, "busy", http.StatusServiceUnavailable, "Older requests are in flight", ""},
	{lockstep.ErrQuota, "busy", http.StatusServiceUnavailable, "There is no room for the request", ""},
}

// failed is for everything else. The cause goes to the server's log only.
var failed = kind{nil, "failed", http.StatusInternalServerError, "The guard failed", "nothing was done"}

func kindOf(err error) kind {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k
		}
	}
	return failed
}

func problemOf(err error) Problem {
	k := kindOf(err)
	p := Problem{Type: typePrefix + k.name, Title: k.title, Status: k.status, Detail: k.detail}
	if p.Detail == "" {
		p.Detail = err.Error()
	}
	if refused, ok := errors.AsType[*fence.RefusedError](err); ok {
		p.Token, p.Lock, p.Backend = refused.Grant.Token, refused.Grant.Lock, refused.Grant.Backend
		p.Seen, p.SeenLock, p.SeenBackend = refused.Mark.Token, refused.Mark.Lock, refused.Mark.Backend
	}
	return p
}

// refuse responds with the problem. An error while writing means that the client has gone.
func refuse(w http.ResponseWriter, err error) {
	p := problemOf(err)
	h := w.Header()
	h.Set("Content-Type", problemType)
	h.Set("Cache-Control", "no-store")
	if p.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p)
}

// maxProblemBytes bounds what [Refusal] reads. Names are at most 512 bytes each, appear twice in
// it, and grow up to six times when escaped.
const maxProblemBytes = 32 << 10

// Refusal returns the refusal that a response carries, or nil. For a verdict of the guard it is a
// [*fence.RefusedError] or [lockstep.ErrInvalid]; it is [fence.ErrBusy] if the request may be
// retried; a failure of the guard is an error of no particular kind. The body can still be read
// afterwards.
func Refusal(resp *http.Response) error {
	if media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || media != problemType {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxProblemBytes))
	resp.Body = &reread{Reader: io.MultiReader(bytes.NewReader(text), resp.Body), Closer: resp.Body}
	if err != nil {
		return fmt.Errorf("read the refusal: %w", err)
	}
	var p Problem
	if err := json.Unmarshal(text, &p); err != nil {
		return nil // somebody else's problem document
	}
	return p.err()
}

type reread struct {
	io.Reader
	io.Closer
}

func (p Problem) err() error {
	name, ours := strings.CutPrefix(p.Type, typePrefix)
	if !ours {
		return nil
	}
	for _, k := range kinds {
		if k.name != name {
			continue
		}
		switch k.err {
		case fence.ErrBusy, lockstep.ErrInvalid:
			return fmt.Errorf("%w: the server says: %s", k.err, p.Detail)
		}
		return &fence.RefusedError{
			Reason: k.err,
			Grant:  fence.Grant{Backend: p.Backend, Lock: p.Lock, Token: p.Token},
			Mark:   fence.Mark{Backend: p.SeenBackend, Lock: p.SeenLock, Token: p.Seen},
		}
	}
	return fmt.Errorf("httpfence: the server says: %s: %s", p.Title, p.Detail)
}
