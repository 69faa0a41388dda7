package client

import (
	"cmp"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// maxEndpoints bounds the list of endpoints; a cluster has 3 or 5 nodes.
const maxEndpoints = 64

// Config says which cluster to use and how.
type Config struct {
	// Endpoints are the "host:port" addresses of nodes of one cluster, at least one. List all of
	// them, so that any may fail.
	Endpoints []string

	// Cluster is the id of the intended cluster, 32 lower-case hexadecimal digits, as shown by
	// "lockstep status". If set, the client never makes requests to a node of another cluster: see
	// [ErrTwoClusters]. Default: the cluster of the first node that answers, until a restore
	// replaces it; the package documentation explains the rules.
	Cluster string

	// TTL is the lease of the session, 1 s to 300 s: a dead client blocks others for at most this
	// long. Below 6 s a change of leader may lose locks. Default: 10 s.
	TTL time.Duration

	// Metadata is shown to others with every claim of this client. The keys "host" and "pid" are
	// filled in unless they are given. At most 1 KiB in total.
	Metadata map[string]string

	// UnavailableAfter is how long Acquire keeps trying a cluster that does not serve before it
	// returns an [*OutageError], which is [lockstep.ErrUnavailable]. Default: the TTL, limited to 5
	// s to 15 s. Negative: no limit other than its context.
	UnavailableAfter time.Duration

	// Credentials secure the connections. Default: none; traffic is not encrypted.
	Credentials credentials.TransportCredentials

	// DialOptions are added to those of each connection.
	DialOptions []grpc.DialOption

	// Logger receives changes of the session and of the connection. Default: none.
	Logger *slog.Logger

	// Observer is notified of events, for metrics. Default: none.
	Observer Observer

	// Clock measures the lease. Default: [lease.SystemClock].
	Clock lease.Clock
}

func (c Config) withDefaults() Config {
	c.Endpoints = slices.Clone(c.Endpoints)
	c.TTL = cmp.Or(c.TTL, lockstep.DefaultTTL)
	c.UnavailableAfter = cmp.Or(c.UnavailableAfter, lease.Patience(c.TTL))
	c.Metadata = withIdentity(c.Metadata)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	if c.Clock == nil {
		c.Clock = lease.SystemClock()
	}
	return c
}

// withIdentity adds the host and the process, so that people can find the holder.
func withIdentity(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = make(map[string]string, 2)
	}
	if _, ok := out["host"]; !ok {
		if host, err := os.Hostname(); err == nil && host != "" {
			out["host"] = host
		}
	}
	if _, ok := out["pid"]; !ok {
		out["pid"] = strconv.Itoa(os.Getpid())
	}
	return out
}

func (c Config) validate() error {
	if len(c.Endpoints) == 0 || len(c.Endpoints) > maxEndpoints {
		return &lockstep.InvalidError{Field: "endpoints", Value: strconv.Itoa(len(c.Endpoints)), Rule: "must be 1 to 64 addresses"}
	}
	for _, e := range c.Endpoints {
		if err := checkEndpoint(e); err != nil {
			return err
		}
	}
	if c.Cluster != "" && !clusterID.MatchString(c.Cluster) {
		return &lockstep.InvalidError{Field: "cluster", Value: lockstep.Excerpt(c.Cluster), Rule: `must be 32 lower-case hexadecimal digits, as "lockstep status" shows them`}
	}
	if err := lockstep.CheckTTL(c.TTL); err != nil {
		return err
	}
	return lockstep.CheckMetadata(c.Metadata)
}

func checkEndpoint(e string) error {
	host, port, err := net.SplitHostPort(e)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n == 0 || host == "" {
		return &lockstep.InvalidError{Field: "endpoint", Value: lockstep.Excerpt(e), Rule: `must be "host:port" with a port from 1 to 65535; an IPv6 address must be in brackets`}
	}
	return nil
}
