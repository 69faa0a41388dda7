package backend

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// Options are what a command says of the Locker that it wants.
type Options struct {
	TTL time.Duration
	// Metadata is shown beside the session where the backend has sessions that show any.
	Metadata map[string]string
	// Cluster is the id of the one cluster of the service that will do. Empty: any. Other backends have none.
	Cluster string
	// Connect bounds how long a backend that does not answer is tried.
	Connect time.Duration
	// Dial makes the connections to host:port. Nil: TCP.
	Dial   func(ctx context.Context, address string) (net.Conn, error)
	Logger *slog.Logger // nil: nothing is logged
}

// dial is how the libraries that name a network want it; nil when they are to dial themselves.
func (o Options) dial() func(ctx context.Context, network, address string) (net.Conn, error) {
	if o.Dial == nil {
		return nil
	}
	return func(ctx context.Context, _, address string) (net.Conn, error) { return o.Dial(ctx, address) }
}

// A kind is one backend: how its URL looks, and how it is opened.
type kind struct {
	scheme  string
	also    []string // other schemes, such as one for TLS
	example string
	// check refuses what the URL has and the backend does not know. It does no I/O.
	check func(URL) error
	// open makes the Locker. It does no I/O: a backend that is not there shows when a lock is asked for.
	open func(URL, Options) (lockstep.Locker, error)
}

// kinds are all backends; the first is the service itself.
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

// Open makes the Locker of a backend. The connections that it uses last as long as the process.
func Open(u URL, o Options) (lockstep.Locker, error) {
	l, err := u.kind.open(u, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.kind.scheme, err)
	}
	return l, nil
}

// A Summary is what one backend promises.
type Summary struct {
	Scheme       string
	Example      string
	Capabilities lockstep.Capabilities
}

// Summaries tell what all backends promise, with the default TTL. They reach no server.
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
