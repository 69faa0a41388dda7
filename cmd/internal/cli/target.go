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
	"github.com/lockstep-dev/lockstep/cmd/internal/backend"
)

// DefaultEndpoint is where clients look for the service by default: the first node of "lockstep
// dev".
const DefaultEndpoint = "127.0.0.1:7400"

// maxEndpoints bounds the list of --endpoints.
const maxEndpoints = 64

// A Target says which lock service a command talks to, and how.
type Target struct {
	Backend   backend.URL
	Endpoints []string // host:port of the service's nodes, at least one, if Backend is native
	Cluster   string   // required cluster id; empty: whatever cluster the nodes belong to
	TTL       time.Duration
	Metadata  map[string]string
	// Connect bounds the time to reach the service initially.
	Connect time.Duration
	Verbose bool         // say on standard error what is waited for, even without a terminal
	Logger  *slog.Logger // nil: no logging
}

// targetFlags are the flags of commands that talk to the service.
type targetFlags struct {
	endpoints []string
	cluster   string
	backend   string
	connect   span
	verbose   bool
	verb      string // the command, for messages
}

func (t *targetFlags) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&t.endpoints, "endpoints", []string{DefaultEndpoint}, "`host:port` of nodes of the service, separated by commas")
	flags.StringVar(&t.backend, "backend", "", "`URL` of the lock backend, such as redis://host:6379 (instead of --endpoints; see \"lockstep backends\")")
	oneOf(flags, "target", "endpoints", "backend")
	flags.StringVar(&t.cluster, "cluster", "", "fail unless the nodes belong to the cluster with this `ID`, as shown by \"lockstep status\"")
	t.connect = span{10 * time.Second, true}
	flags.Var(&t.connect, "connect-timeout", "give up if the service cannot be reached within this time")
	flags.BoolVarP(&t.verbose, "verbose", "v", false, "report on standard error what the command is waiting for, as at a terminal")
	t.verb = flags.Name()
}

// target validates the flags.
func (t *targetFlags) target() (Target, error) {
	u, flag, err := t.url()
	if err != nil {
		return Target{}, err
	}
	if u.Native() {
		if len(u.Hosts) == 0 || len(u.Hosts) > maxEndpoints {
			return Target{}, usageError("%s: must be 1 to %d addresses of the form host:port, such as %s", flag, maxEndpoints, DefaultEndpoint)
		}
		for _, e := range u.Hosts {
			if err := checkEndpoint(flag, e); err != nil {
				return Target{}, err
			}
		}
	}
	if t.connect.d <= 0 {
		return Target{}, usageError("--connect-timeout: must be above 0")
	}
	if t.cluster != "" && !u.Native() {
		return Target{}, usageError("--cluster: %s:// has no cluster id: the flag is for the lock service itself", u.Scheme())
	}
	return Target{Backend: u, Endpoints: u.Hosts, Cluster: t.cluster, Connect: t.connect.d, Verbose: t.verbose}, nil
}

// url returns where the locks are, and the flag that says so.
func (t *targetFlags) url() (u backend.URL, flag string, err error) {
	if t.backend == "" {
		return backend.Service(t.endpoints), "--endpoints", nil
	}
	if u, err = backend.Parse(t.backend); err != nil {
		return u, "", usageError("--backend: %w", err)
	}
	return u, "--backend", nil
}

// checkEndpoint requires host:port with a port from 1 to 65535, and brackets around an IPv6
// address.
func checkEndpoint(flag, endpoint string) error {
	host, port, err := net.SplitHostPort(endpoint)
	number, errPort := strconv.ParseUint(port, 10, 16)
	switch {
	case strings.Contains(endpoint, "://"):
		return usageError("%s: %s: must be host:port, such as %s, without a scheme", flag, lockstep.Excerpt(endpoint), DefaultEndpoint)
	case err != nil && strings.Count(endpoint, ":") > 1 && !strings.HasPrefix(endpoint, "["):
		return usageError("%s: %s: an IPv6 address needs brackets, such as [::1]:7400", flag, lockstep.Excerpt(endpoint))
	case err != nil || host == "" || errPort != nil || number == 0 || !plainHost(host, endpoint[0] == '['):
		return usageError("%s: %s: must be host:port, such as %s", flag, lockstep.Excerpt(endpoint), DefaultEndpoint)
	}
	return nil
}

// plainHost rejects what is certainly not a name or an address, such as a URL.
func plainHost(host string, brackets bool) bool {
	if brackets {
		address, _, _ := strings.Cut(host, "%")
		return net.ParseIP(address) != nil
	}
	return url.PathEscape(host) == host
}
