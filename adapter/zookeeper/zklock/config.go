package zklock

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// maxServers bounds the list of servers; no ensemble has as many.
const maxServers = 64

// Config says where ZooKeeper is and how to use it.
type Config struct {
	// Servers are the addresses of the ensemble, "host:port" or "host" for port 2181; 1 to 64. They
	// are tried in random order, and their names are resolved for each connection.
	Servers []string
	// TTL is the session timeout to request, 1 s to 300 s. Default: 10 s. The servers clamp it to
	// their bounds, by default 2 to 20 ticks: 4 s to 40 s with a tick of 2 s. The granted value
	// counts. It should be five ticks or more to survive a leader election.
	TTL time.Duration
	// TickTime is the tickTime of the servers, up to half the session timeout. Default: that half,
	// the longest possible. Setting it lets locks survive longer outages, and makes
	// [Locker.Capabilities] report a shorter Grace. If it is too short, two holders may overlap
	// when a server dies at the wrong moment.
	TickTime time.Duration
	// Root is the node under which everything is kept. Default: "/lockstep". It is created if
	// missing.
	Root string
	// User and Password are credentials for ZooKeeper's "digest" scheme. Default: none.
	User, Password string
	// ACL says who may use the nodes that this Locker creates. Default: only the user if there is
	// one, otherwise the world.
	ACL []zk.ACL
	// Dial makes the connections; its context ends when the session does, or when connecting takes
	// too long. Default: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// UnavailableAfter is how long Acquire keeps trying servers that do not answer before it
	// returns [lockstep.ErrUnavailable]. Default: the TTL, limited to 5 s to 15 s.
	UnavailableAfter time.Duration
	// Logger receives the log. Default: [slog.DiscardHandler].
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.TTL = cmp.Or(c.TTL, lockstep.DefaultTTL)
	c.Root = cmp.Or(c.Root, "/lockstep")
	c.UnavailableAfter = cmp.Or(c.UnavailableAfter, lease.Patience(c.TTL))
	c.Servers = zk.FormatServers(c.Servers)
	c.ACL = slices.Clone(c.ACL)
	if c.ACL == nil && c.User != "" {
		c.ACL = zk.AuthACL(zk.PermAll)
	}
	if c.ACL == nil {
		c.ACL = zk.WorldACL(zk.PermAll)
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	for _, check := range []func() error{c.checkServers, func() error { return lockstep.CheckTTL(c.TTL) }, c.checkRoot, c.checkRest} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) checkServers() error {
	if len(c.Servers) == 0 || len(c.Servers) > maxServers {
		return &lockstep.InvalidError{Field: "servers", Value: strconv.Itoa(len(c.Servers)), Rule: fmt.Sprintf("must be 1 to %d", maxServers)}
	}
	for _, server := range c.Servers {
		host, port, err := net.SplitHostPort(server)
		if n, errPort := strconv.ParseUint(port, 10, 16); err != nil || errPort != nil || n == 0 || host == "" {
			return &lockstep.InvalidError{Field: "servers", Value: lockstep.Excerpt(server), Rule: `must be "host:port" with a port of 1 to 65535, or "host"`}
		}
	}
	return nil
}

// maxRootBytes leaves room for a name in a path.
const maxRootBytes = 256

func (c Config) checkRoot() error {
	rule := ""
	switch {
	case !strings.HasPrefix(c.Root, "/") || c.Root == "/" || len(c.Root) > maxRootBytes:
		rule = fmt.Sprintf(`must begin with "/", name a node and have at most %d bytes`, maxRootBytes)
	case c.Root == "/zookeeper" || strings.HasPrefix(c.Root, "/zookeeper/"):
		rule = "must not be in /zookeeper, which is ZooKeeper's own"
	case lockstep.CheckName(c.Root[1:]) != nil:
		rule = `must be printable segments split by "/"`
	default:
		return nil
	}
	return &lockstep.InvalidError{Field: "root", Value: lockstep.Excerpt(c.Root), Rule: rule}
}

func (c Config) checkRest() error {
	switch {
	case c.User == "" && c.Password != "":
		return &lockstep.InvalidError{Field: "user", Rule: "must not be empty when there is a password"}
	case c.TickTime < 0:
		return &lockstep.InvalidError{Field: "tick time", Value: c.TickTime.String(), Rule: "must not be negative"}
	case c.UnavailableAfter < 0:
		return &lockstep.InvalidError{Field: "unavailable after", Value: c.UnavailableAfter.String(), Rule: "must not be negative"}
	case strings.Contains(c.User, ":"):
		return &lockstep.InvalidError{Field: "user", Value: lockstep.Excerpt(c.User), Rule: `must not contain ":"`}
	}
	return nil
}

// capabilities are what ZooKeeper promises with this timing.
func capabilities(t timing) lockstep.Capabilities {
	return lockstep.Capabilities{
		Backend: "zookeeper", TTL: t.timeout, Grace: t.grace(),
		Fenced: true, FIFO: true, Shared: true, SurvivesFailover: true,
		Notes: []string{
			"Tokens rise until ZooKeeper is restored from a backup: reset the guards when that happens.",
			"The servers clamp the TTL to their own bounds, by default 2 to 20 ticks. Before the first session the TTL is what was asked for, then what was granted.",
			"Followers report signs of life to the leader with delay, so an outage of more than a third of the TTL may lose all locks, or of half the TTL when the tick is told and short.",
			"All locks of a client belong to one session and are lost together.",
			"A server that was started with minSessionTimeout below two ticks, or with observerMasterPort, may end a session before its holder knows.",
			"A client that dies between the grant of a shared lock and the writing of its token holds up later shared claims for one TTL.",
		},
	}
}
