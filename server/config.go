package server

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/replica"
)

// The default ports of a node.
const (
	DefaultListen     = "127.0.0.1:7400"
	DefaultPeerListen = "127.0.0.1:7401"
	DefaultHTTPListen = "127.0.0.1:7402"
	// The default of the health port is the one after HTTPListen's: 127.0.0.1:7403.
)

// MaxNodes bounds the initial cluster. Each further node makes every write wait for more of them;
// five tolerate the loss of two.
const MaxNodes = 9

// DefaultStopTimeout is the default of Config.StopTimeout.
const DefaultStopTimeout = 5 * time.Second

// DefaultSessionsPerAddress is the default of Config.SessionsPerAddress.
const DefaultSessionsPerAddress = replica.DefaultSessionsPerAddress

// A Config configures New. Name and DataDir have no default.
type Config struct {
	// Name is this node's name in the cluster: 1 to 63 letters, digits, ".", "_" and "-".
	Name string

	// DataDir holds the log and the snapshots. It is created with mode 0700 if it is missing. Two
	// processes cannot use the same directory.
	DataDir string

	// Listen, PeerListen and HTTPListen are the addresses, host:port, for clients, for peers and
	// for the JSON API. Port 0 picks a free one. Defaults: DefaultListen and so on.
	Listen, PeerListen, HTTPListen string

	// HealthListen is the address for health checks and metrics. Nothing can be changed there, and
	// it answers while the other ports are full. Default: the host of HTTPListen and the next port;
	// a free port if HTTPListen has port 0 or is given as a listener.
	HealthListen string

	// Listeners that are not nil are used instead of binding those addresses. Run closes them.
	Listeners Listeners

	// AdvertiseClient is where clients reach this node, host:port. Default: the address that Listen
	// was bound to, which then must not be a wildcard.
	AdvertiseClient string

	// AdvertisePeer is where peers reach this node, host:port. It must equal the address of Name in
	// InitialCluster, which is the default.
	AdvertisePeer string

	// InitialCluster lists all nodes that the cluster starts with, name -> peer address, the same
	// on each of them: 1 to 9, including this node. Default: this node alone, at the address that
	// PeerListen was bound to.
	InitialCluster map[string]string

	// InitialMissing lists nodes of InitialCluster, by name, that are known not to exist: a new
	// cluster begins without waiting for them. It must be the same on all nodes that do start. Do
	// not name a node that has ever existed and is only down or was wiped: what it acknowledged
	// would be forgotten. Default: none.
	InitialMissing []string

	// Join is the id of a running cluster that this node was added to, 32 hexadecimal digits.
	// InitialCluster then has this node and present members that it can ask. Default: the node is
	// one of those that the cluster starts with.
	Join string

	// ClusterSecretFile is a file with the secret that the nodes of the cluster share, one line of
	// at least 32 bytes; a peer without it is refused. If there are several lines, this node proves
	// its identity with the first, and accepts each of them. The file is read again when it
	// changes. Only its owner, or a group of this process, may be able to read it. It is required
	// for more than one initial node, for Join, and when PeerListen is not a loopback address.
	// Default: none, and no peer is let in.
	ClusterSecretFile string
	// ClusterSecret is the same in memory, instead of in a file.
	ClusterSecret string

	// Insecure allows addresses other than loopback, although anyone who can reach a port has full
	// access to it.
	Insecure bool

	// Zone is where this node is, such as the name of a data centre: 1 to 63 letters, digits, ".",
	// "_" and "-". It is shown with the member. LeaderZone is the zone in which the leader should
	// be: a leader elsewhere hands leadership over to a member there that is up and not behind,
	// half a minute after it became leader. It must be the same on all nodes. Default: none, and
	// anywhere.
	Zone, LeaderZone string

	// SessionsPerAddress limits the live sessions of clients at one IP address (for IPv6, one /64),
	// as far as the leader knows: those opened or renewed while it leads. Further ones are refused
	// with QUOTA_EXCEEDED. Default: 60,000.
	SessionsPerAddress int

	// HTTPHosts lists host names, without port, that HTTP requests may be addressed to. IP
	// addresses, "localhost" and the hosts of Listen, HTTPListen, HealthListen and AdvertiseClient
	// are always allowed. Other names are refused, so that a web page cannot make its own name
	// resolve to this port and read it.
	HTTPHosts []string

	// Connections limits the client connections. Default: as many as the process's open file limit
	// leaves room for, at most 65,536. A higher value than there is room for is refused.
	Connections int
	// WatchesPerConnection limits the watches of one gRPC connection. Default: 16.
	WatchesPerConnection int

	// ConnectionsPerAddress limits the connections of one IPv4 address or IPv6 /64 network, on the
	// client and the HTTP port. Default: half of what each port has.
	ConnectionsPerAddress int
	// nodes is the number of nodes that share the open file limit; 0 means 1.
	nodes int

	// AuditLog is a file that every event of the history is written to, one JSON line each; see
	// package audit. Default: none.
	AuditLog string
	// AuditLogBytes is the size at which that file is rotated, and AuditLogFiles the number of
	// files kept. Defaults: those of package audit.
	AuditLogBytes int64
	AuditLogFiles int

	// StopTimeout bounds the handover of leadership during shutdown. Default: 5 s. After it,
	// clients get 2 s more, and files are closed.
	StopTimeout time.Duration

	// Version is the version of the binary, for Status.
	Version string

	// Built is when the binary was built. A new cluster does not start granting while the machine's
	// clock is earlier than that, because tokens begin at that clock. Default: the time of the
	// commit, if the toolchain recorded it.
	Built time.Time

	// TokenFloor, if not zero, is the first token floor of a new or restored cluster, instead of
	// one from the machine's clock. Use it only on a machine whose clock cannot be set correctly:
	// at most 2^53 - 1, and above every token ever issued.
	TokenFloor uint64

	// Logger receives the log. Default: discard.
	Logger *slog.Logger
}

// Listeners are the ports of a node.
type Listeners struct{ Client, Peer, HTTP, Health net.Listener }

// A ConfigError says which field of a Config breaks which rule.
type ConfigError struct {
	Field string // such as "PeerListen"
	Rule  string
}

func (e *ConfigError) Error() string { return "server: " + e.Field + ": " + e.Rule }

func wrong(field, format string, args ...any) error {
	return &ConfigError{Field: field, Rule: fmt.Sprintf(format, args...)}
}

func (c Config) withDefaults() Config {
	fallback(&c.Listen, DefaultListen)
	fallback(&c.PeerListen, DefaultPeerListen)
	fallback(&c.HTTPListen, DefaultHTTPListen)
	fallback(&c.HealthListen, c.healthDefault())
	fallback(&c.AdvertisePeer, c.InitialCluster[c.Name])
	if c.SessionsPerAddress == 0 {
		c.SessionsPerAddress = DefaultSessionsPerAddress
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = DefaultStopTimeout
	}
	if c.Built.IsZero() {
		c.Built = commitTime()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// healthDefault returns the address after that of HTTPListen, or "" if there is none.
func (c Config) healthDefault() string {
	address := c.HTTPListen
	if l := c.Listeners.HTTP; l != nil {
		address = l.Addr().String()
	}
	host, port, err := splitAddress(address)
	switch {
	case err != nil || port == 65535:
		return ""
	case port == 0 || c.Listeners.HTTP != nil:
		return net.JoinHostPort(host, "0")
	}
	return net.JoinHostPort(host, strconv.Itoa(port+1))
}

// commitTime returns the time of the commit that the binary was built from, or the zero time.
func commitTime() (t time.Time) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return t
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			t, _ = time.Parse(time.RFC3339, s.Value) // zero if the text is invalid
		}
	}
	return t
}

func fallback(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

var nodeName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)

const nodeNameRule = `%q must have 1 to 63 letters, digits, ".", "_" or "-"`

// CheckCluster checks what determines a data directory: Name, DataDir, and the fields about the
// cluster. An error is a [*ConfigError].
func (c Config) CheckCluster() error {
	c = c.withDefaults()
	if err := c.checkOwn(); err != nil {
		return err
	}
	return c.checkCluster()
}

func (c Config) checkOwn() error {
	switch {
	case !nodeName.MatchString(c.Name):
		return wrong("Name", nodeNameRule, c.Name)
	case c.Zone != "" && !nodeName.MatchString(c.Zone):
		return wrong("Zone", nodeNameRule, c.Zone)
	case c.LeaderZone != "" && !nodeName.MatchString(c.LeaderZone):
		return wrong("LeaderZone", nodeNameRule, c.LeaderZone)
	case c.DataDir == "":
		return wrong("DataDir", "must not be empty")
	}
	return nil
}

func (c Config) validate() error {
	if err := c.checkOwn(); err != nil {
		return err
	}
	switch {
	case c.TokenFloor > uint64(command.MaxToken):
		return wrong("TokenFloor", "is %d, must be at most %d", c.TokenFloor, uint64(command.MaxToken))
	case c.SessionsPerAddress < 0:
		return wrong("SessionsPerAddress", "is %d, must be at least 1", c.SessionsPerAddress)
	case c.Connections < 0:
		return wrong("Connections", "is %d, must not be negative", c.Connections)
	case c.WatchesPerConnection < 0:
		return wrong("WatchesPerConnection", "is %d, must not be negative", c.WatchesPerConnection)
	case c.ConnectionsPerAddress < 0:
		return wrong("ConnectionsPerAddress", "is %d, must not be negative", c.ConnectionsPerAddress)
	case c.StopTimeout < 0:
		return wrong("StopTimeout", "is %v, must not be negative", c.StopTimeout)
	}
	if err := c.checkListen(); err != nil {
		return err
	}
	if err := c.checkAdvertised(); err != nil {
		return err
	}
	if err := c.checkCluster(); err != nil {
		return err
	}
	return c.checkSecret()
}

func (c Config) checkListen() error {
	seen := map[string]string{}
	for _, l := range c.ports() {
		address := l.address
		if l.listener != nil {
			address = l.listener.Addr().String()
		}
		if address == "" && l.field == "HealthListen" {
			return wrong(l.field, "is required: there is no port after HTTPListen %q", c.HTTPListen)
		}
		host, port, err := splitAddress(address)
		if err != nil {
			return wrong(l.field, "%v", err)
		}
		if !c.Insecure && !isLoopback(host) {
			return wrong(l.field, "%q is not a loopback address, and there is no access control yet: anyone who can reach the port has full access; set Insecure to allow this", address)
		}
		if other, ok := seen[address]; ok && port != 0 {
			return wrong(l.field, "%q is also the address of %s", address, other)
		}
		seen[address] = l.field
	}
	return nil
}

// A port is one of the listening addresses.
type port struct {
	field, address string
	listener       net.Listener
}

func (c Config) ports() [4]port {
	return [4]port{
		{"Listen", c.Listen, c.Listeners.Client},
		{"PeerListen", c.PeerListen, c.Listeners.Peer},
		{"HTTPListen", c.HTTPListen, c.Listeners.HTTP},
		{"HealthListen", c.HealthListen, c.Listeners.Health},
	}
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%q must be host:port", address)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q must have a port from 0 to 65535", address)
	}
	return host, int(n), nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// isWildcard reports whether host means all addresses of the machine, so that nobody can dial it.
func isWildcard(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// checkReachable checks an address that others are told to dial.
func checkReachable(field, address string) error {
	host, port, err := splitAddress(address)
	switch {
	case err != nil:
		return wrong(field, "%v", err)
	case isWildcard(host):
		return wrong(field, "%q has no host that others can dial", address)
	case port == 0:
		return wrong(field, "%q must not have port 0", address)
	}
	return nil
}

func (c Config) checkAdvertised() error {
	if c.AdvertiseClient != "" {
		return checkReachable("AdvertiseClient", c.AdvertiseClient)
	}
	listen := c.ports()[0]
	if listen.listener != nil {
		return nil // its address is known, and Run checks it
	}
	if host, _, _ := splitAddress(listen.address); isWildcard(host) {
		return wrong("AdvertiseClient", "is required, because Listen %q is a wildcard", listen.address)
	}
	return nil
}

// clusterID is the form of Config.Join.
var clusterID = regexp.MustCompile(`^[0-9a-f]{32}$`)

func (c Config) checkCluster() error {
	switch {
	case c.Join != "" && !clusterID.MatchString(c.Join):
		return wrong("Join", "%.64q is not a cluster id: it must be 32 hexadecimal digits, as shown by member add", c.Join)
	case c.Join != "" && len(c.InitialCluster) < 2:
		return wrong("Join", "needs InitialCluster with this node and at least one current member")
	case len(c.InitialMissing) > 0 && len(c.InitialCluster) == 0:
		return wrong("InitialMissing", "needs InitialCluster")
	case len(c.InitialCluster) == 0:
		return nil
	}
	if len(c.InitialCluster) > MaxNodes {
		return wrong("InitialCluster", "has %d nodes, the limit is %d", len(c.InitialCluster), MaxNodes)
	}
	own, ok := c.InitialCluster[c.Name]
	if !ok {
		return wrong("InitialCluster", "does not contain this node, %q", c.Name)
	}
	if c.AdvertisePeer != own {
		return wrong("AdvertisePeer", "is %q, but InitialCluster says that %s is at %q", c.AdvertisePeer, c.Name, own)
	}
	byAddress := map[string]string{}
	for name, address := range c.InitialCluster {
		if !nodeName.MatchString(name) {
			return wrong("InitialCluster", nodeNameRule, name)
		}
		if err := checkReachable("InitialCluster", address); err != nil {
			return err
		}
		if other, ok := byAddress[address]; ok {
			return wrong("InitialCluster", "%s and %s have the same address %q", min(name, other), max(name, other), address)
		}
		byAddress[address] = name
	}
	for _, name := range c.InitialMissing {
		if c.InitialCluster[name] == "" {
			return wrong("InitialMissing", "%q is not in InitialCluster", name)
		}
		if name == c.Name {
			return wrong("InitialMissing", "contains this node, %q, which does exist", name)
		}
	}
	return nil
}
