package cli

import (
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/lockstep-dev/lockstep"
)

// DefaultEndpoint is where clients look for the service when nobody says: the first
// node of "lockstep dev".
const DefaultEndpoint = "127.0.0.1:7400"

// maxEndpoints bounds the list of --endpoints.
const maxEndpoints = 64

// A Target says which lock service a command talks to, and how.
type Target struct {
	Endpoints []string // host:port of the service's nodes, at least one
	TTL       time.Duration
	Metadata  map[string]string
	// Connect bounds the time in which the service must be reached at first.
	Connect time.Duration
	Logger  *slog.Logger // nil: nothing is logged
}

// targetFlags are the flags of commands that talk to the service.
type targetFlags struct {
	endpoints []string
	backend   string
	connect   span
}

func (t *targetFlags) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&t.endpoints, "endpoints", []string{DefaultEndpoint}, "`host:port` of nodes of the service, with commas")
	flags.StringVar(&t.backend, "backend", "", "the lock service as a `URL`, such as lockstep://host:port,host:port (instead of --endpoints)")
	oneOf(flags, "target", "endpoints", "backend")
	t.connect = span{10 * time.Second, true}
	flags.Var(&t.connect, "connect-timeout", "give up when the service cannot be reached for so long")
}

// target checks the flags.
func (t *targetFlags) target() (Target, error) {
	endpoints := t.endpoints
	if t.backend != "" {
		var err error
		if endpoints, err = parseBackend(t.backend); err != nil {
			return Target{}, err
		}
	}
	if len(endpoints) == 0 || len(endpoints) > maxEndpoints {
		return Target{}, usageError("--endpoints: want 1 to %d of the form host:port, such as %s", maxEndpoints, DefaultEndpoint)
	}
	for _, e := range endpoints {
		if err := checkEndpoint("--endpoints", e); err != nil {
			return Target{}, err
		}
	}
	if t.connect.d <= 0 {
		return Target{}, usageError("--connect-timeout: must be above 0")
	}
	return Target{Endpoints: endpoints, Connect: t.connect.d}, nil
}

// otherBackends are the schemes of backends that this program has no part of.
var otherBackends = []string{"redis", "redlock", "zk", "etcd", "postgres"}

func parseBackend(text string) ([]string, error) {
	scheme, rest, found := strings.Cut(text, "://")
	switch {
	case !found:
		return nil, usageError("--backend: %s: want a URL such as lockstep://%s", lockstep.Excerpt(text), DefaultEndpoint)
	case scheme == "lockstep":
		return strings.Split(strings.TrimSuffix(rest, "/"), ","), nil
	}
	for _, other := range otherBackends {
		if scheme == other {
			return nil, usageError("--backend: this build of lockstep has no %s backend: use lockstep://host:port,...", scheme)
		}
	}
	return nil, usageError("--backend: unknown scheme %s: use lockstep://host:port,...", lockstep.Excerpt(scheme))
}

// checkEndpoint wants host:port with a port from 1 to 65535, and brackets round an
// IPv6 address.
func checkEndpoint(flag, endpoint string) error {
	host, port, err := net.SplitHostPort(endpoint)
	number, errPort := strconv.ParseUint(port, 10, 16)
	switch {
	case strings.Contains(endpoint, "://"):
		return usageError("%s: %s: want host:port, such as %s, without a scheme", flag, lockstep.Excerpt(endpoint), DefaultEndpoint)
	case err != nil && strings.Count(endpoint, ":") > 1 && !strings.HasPrefix(endpoint, "["):
		return usageError("%s: %s: an IPv6 address needs brackets, such as [::1]:7400", flag, lockstep.Excerpt(endpoint))
	case err != nil || host == "" || errPort != nil || number == 0 || !plainHost(host, endpoint[0] == '['):
		return usageError("%s: %s: want host:port, such as %s", flag, lockstep.Excerpt(endpoint), DefaultEndpoint)
	}
	return nil
}

// plainHost refuses what is certainly no name or address, such as a URL.
func plainHost(host string, brackets bool) bool {
	if brackets {
		address, _, _ := strings.Cut(host, "%")
		return net.ParseIP(address) != nil
	}
	return url.PathEscape(host) == host
}
