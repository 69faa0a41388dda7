package httpfence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

const (
	// DefaultWait is how long a request waits for older ones by default.
	DefaultWait = 5 * time.Second
	// DefaultMaxInFlight is how many requests one resource may have at once by default.
	DefaultMaxInFlight = 1024
)

// Config is what a [Middleware] needs.
type Config struct {
	// Guard keeps the marks. Required.
	Guard fence.Guard

	// Resource names the resource of a request, 1 to [fence.MaxResourceBytes] bytes. All requests
	// that can change the same thing must get the same name, whatever their spelling or method. An
	// error that is [lockstep.ErrInvalid] is answered with status 400. Default: [ByPath].
	Resource func(*http.Request) (string, error)

	// Step says what a request does. It must reflect what the handler does, not what the client
	// would like. Default: [ByMethod].
	Step func(*http.Request) fence.Step

	// Wait bounds the time for which a request waits for older ones in flight. Default:
	// [DefaultWait]. It should exceed the run time of a handler.
	Wait time.Duration

	// MaxInFlight bounds the requests with tokens on one resource at once, including waiting ones.
	// Requests beyond it are answered with status 503. Default: [DefaultMaxInFlight].
	MaxInFlight int

	// Observer is notified of each decision. Default: none.
	Observer fence.Observer

	// Logger receives the failures of the guard. Default: [slog.DiscardHandler].
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Resource == nil {
		c.Resource = ByPath
	}
	if c.Step == nil {
		c.Step = ByMethod
	}
	if c.Wait == 0 {
		c.Wait = DefaultWait
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = DefaultMaxInFlight
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Guard == nil:
		return &lockstep.InvalidError{Field: "guard", Rule: "must be set"}
	case c.Wait < 0:
		return &lockstep.InvalidError{Field: "wait", Value: c.Wait.String(), Rule: "must not be negative"}
	case c.MaxInFlight < 0:
		return &lockstep.InvalidError{Field: "max in flight", Value: fmt.Sprint(c.MaxInFlight), Rule: "must not be negative"}
	}
	return nil
}

// ByPath uses the cleaned path of the URL as the resource. Host, query and a trailing slash make no
// difference.
func ByPath(r *http.Request) (string, error) { return path.Clean("/" + r.URL.Path), nil }

// ByMethod treats GET, HEAD, OPTIONS and TRACE as [fence.Enter], and all other methods as
// [fence.Write].
func ByMethod(r *http.Request) fence.Step {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return fence.Enter
	default:
		return fence.Write
	}
}

// A Middleware guards handlers. All handlers that one Middleware wraps share its set of requests in
// flight, so handlers of the same resources must use the same Middleware. It is safe for concurrent
// use.
type Middleware struct {
	cfg      Config
	inflight *inflight
}

// New returns a Middleware, or [lockstep.ErrInvalid].
func New(cfg Config) (*Middleware, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Middleware{cfg: cfg, inflight: newInflight(cfg.MaxInFlight)}, nil
}

// Wrap returns the guarded handler.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		step := m.cfg.Step(r)
		if step == fence.Enter && !carriesGrant(r.Header) {
			next.ServeHTTP(w, r)
			return
		}
		resource, g, err := m.identify(r)
		if err != nil {
			fence.Tell(m.cfg.Observer, resource, g, step, err)
			m.refuse(w, r, err)
			return
		}
		if err := m.inflight.join(resource, g.Token); err != nil {
			m.refuse(w, r, err)
			return
		}
		defer m.inflight.leave(resource, g.Token) // also when the handler panics
		err = m.admit(r.Context(), resource, g, step)
		fence.Tell(m.cfg.Observer, resource, g, step, err)
		if err != nil {
			m.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), grantKey{}, g)))
	})
}

// identify determines the resource and grant of the request. A request without a grant is refused
// here.
func (m *Middleware) identify(r *http.Request) (resource string, g fence.Grant, err error) {
	resource, err = m.cfg.Resource(r)
	if err == nil {
		err = fence.CheckResource(resource)
	}
	if err != nil {
		return "", g, fmt.Errorf("name the resource: %w", err)
	}
	if g, err = ReadGrant(r.Header); err == nil {
		err = g.Check()
	}
	return resource, g, err
}

// admit raises the mark, so that no older request is admitted from now on, and waits for those
// already admitted.
func (m *Middleware) admit(ctx context.Context, resource string, g fence.Grant, s fence.Step) error {
	if s == fence.WriteOnce {
		return m.admitOnce(ctx, resource, g)
	}
	if err := m.cfg.Guard.Admit(ctx, resource, g, s); err != nil {
		return err
	}
	return m.awaitOlder(ctx, resource, g)
}

// admitOnce records the write after the wait: a request whose wait timed out has done nothing.
func (m *Middleware) admitOnce(ctx context.Context, resource string, g fence.Grant) error {
	entered := m.cfg.Guard.Admit(ctx, resource, g, fence.Enter)
	if entered != nil && !errors.Is(entered, fence.ErrStale) {
		return entered
	}
	if entered == nil {
		if err := m.awaitOlder(ctx, resource, g); err != nil {
			return err
		}
	}
	// A retry that is too late to enter may still learn that its first attempt was admitted.
	if err := m.cfg.Guard.Admit(ctx, resource, g, fence.WriteOnce); err != nil {
		return err
	}
	return entered
}

func (m *Middleware) awaitOlder(ctx context.Context, resource string, g fence.Grant) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.cfg.Wait,
		fmt.Errorf("%w: older requests are still in flight after %v; try again", fence.ErrBusy, m.cfg.Wait))
	defer cancel()
	return m.inflight.awaitOlder(ctx, resource, g.Token)
}

func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if kindOf(err) == failed && r.Context().Err() == nil {
		m.cfg.Logger.ErrorContext(r.Context(), "guard failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	refuse(w, err)
}

type grantKey struct{}

// GrantFrom returns the grant with which the request of this context was admitted, for passing it
// on to the guard of a store. An unguarded read has none.
func GrantFrom(ctx context.Context) (fence.Grant, bool) {
	g, ok := ctx.Value(grantKey{}).(fence.Grant)
	return g, ok
}
