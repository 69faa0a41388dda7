package backend

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// Options say which Locker a command wants.
type Options struct {
	TTL time.Duration
	// Metadata is shown with the session, if the backend's sessions show any.
	Metadata map[string]string
	// Cluster is the required cluster id of the service. Empty: any. Other backends have none.
	Cluster string
	// Connect bounds how long to try a backend that does not answer.
	Connect time.Duration
	// Dial opens connections to host:port. Nil: TCP.
	Dial   func(ctx context.Context, address string) (net.Conn, error)
	Logger *slog.Logger // nil: no logging
}

// dial adapts Dial to libraries that pass a network. It returns nil if they should dial themselves.
func (o Options) dial() func(ctx context.Context, network, address string) (net.Conn, error) {
	if o.Dial == nil {
		return nil
	}
	return func(ctx context.Context, _, address string) (net.Conn, error) { return o.Dial(ctx, address) }
}

// A kind is one backend: what its URL looks like, and how it is opened.
type kind struct {
	scheme  string
	also    []string // other schemes, such as one for TLS
	example string
	// check rejects parts of the URL that the backend does not support. It does no I/O.
	check func(URL) error
	// open returns the Locker. It does no I/O: an unavailable backend shows when a lock is
	// requested.
	open func(URL, Options) (lockstep.Locker, error)
}

// kinds lists all backends. The first is the service itself.
var kinds = []*kind{&native, &redisKey, &redlockKind, &zookeeper, &etcd, &postgres}

func kindOf(scheme string) *kind {
	for _, k := range kinds {
		for _, s := range append([]string{k.scheme}, k.also...) {
			if s == scheme {
				return k
			}
		}
	}
	return nil
}

func schemes() (all []string) {
	for _, k := range kinds {
		all = append(all, k.scheme+"://")
	}
	return all
}

// Open returns the Locker of a backend. Its connections last as long as the process.
func Open(u URL, o Options) (lockstep.Locker, error) {
	l, err := u.kind.open(u, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.kind.scheme, err)
	}
	return l, nil
}

// A Summary says what one backend promises.
type Summary struct {
	Scheme       string
	Example      string
	Capabilities lockstep.Capabilities
}

// Summaries returns what all backends promise, with the default TTL. It contacts no server.
func Summaries() (all []Summary, err error) {
	for _, k := range kinds {
		u, err := Parse(k.example)
		if err != nil {
			return nil, fmt.Errorf("the example of %s: %w", k.scheme, err)
		}
		l, err := Open(u, Options{TTL: lockstep.DefaultTTL})
		if err != nil {
			return nil, err
		}
		all = append(all, Summary{k.scheme, k.example, l.Capabilities()})
	}
	return all, nil
}
