package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/lockstep-dev/lockstep/server"
	"github.com/lockstep-dev/lockstep/server/audit"
)

// serverFlags are the flags of server.
type serverFlags struct {
	config         server.Config
	initialCluster []string
	force          forceFlags
	log            logFlags
	print          bool
}

func (a *App) serverCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "server --name NAME --data-dir DIR [flags]",
		Short: "Run one node of a cluster",
		Long: `Runs one node of a cluster until INT or TERM. It hands over leadership before it ends. A second
signal ends it at once, which loses nothing. HUP makes it check immediately whether the audit log was moved.

Start all nodes of a new cluster with the same --initial-cluster; each waits until all the
others are up. --initial-missing names nodes that do not exist yet. A node that existed and was
lost is not missing: replace it with "member replace".

A node has four ports. Clients use --listen, and the other nodes use --peer-listen. --http-listen serves
the JSON API, which can do whatever clients can: do not use it for monitoring. --health-listen is for
monitoring, with /livez, /readyz and /metrics: it is read-only, and responds even if the other ports are
at their connection limits.

The nodes of a cluster authenticate each other with a secret: "lockstep keygen secret FILE" generates one,
which every node gets as --cluster-secret-file. A single node that listens for peers on loopback needs none.

For a cluster of one node: --initial-cluster n1=HOST:7401. Addresses other than loopback require
--insecure, because anyone who can reach the client port has full access.

Exit codes: 0 after INT or TERM, 64 for an invalid configuration, 70 if the node cannot continue.`,
		Example: `  lockstep keygen secret cluster.secret
  lockstep server --name n1 --data-dir /var/lib/lockstep --cluster-secret-file cluster.secret \
    --listen 127.0.0.1:7400 --peer-listen 127.0.0.1:7401 --http-listen 127.0.0.1:7402 --health-listen 127.0.0.1:7403 \
    --initial-cluster n1=127.0.0.1:7401,n2=127.0.0.1:7411,n3=127.0.0.1:7421
  lockstep server --config /etc/lockstep.yaml --print-config`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.print {
				return a.printConfig(cmd.Flags())
			}
			config, err := f.resolve(a)
			if err != nil {
				return err
			}
			node, err := server.New(config)
			if err != nil {
				return configError(err)
			}
			if err := knowsItsCluster(config); err != nil {
				return err
			}
			if err := f.force.run(config); err != nil {
				return err
			}
			// The node must survive the exit of a tool that reads its log: the write fails, nothing
			// more.
			signal.Ignore(syscall.SIGPIPE)
			return serve(cmd.Context(), node.Run, node.ReopenLogs)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *serverFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.config.Name, "name", "", "`name` of this node in the cluster")
	flags.StringVar(&f.config.DataDir, "data-dir", "", "`directory` for the log and the snapshots")
	flags.StringVar(&f.config.Listen, "listen", server.DefaultListen, "`host:port` for clients")
	flags.StringVar(&f.config.PeerListen, "peer-listen", server.DefaultPeerListen, "`host:port` for the other nodes")
	flags.StringVar(&f.config.HTTPListen, "http-listen", server.DefaultHTTPListen, "`host:port` for the JSON API, which can acquire and revoke locks")
	flags.StringVar(&f.config.HealthListen, "health-listen", "", "`host:port` for health checks and metrics, read-only (default: the port after --http-listen)")
	flags.StringVar(&f.config.AdvertiseClient, "advertise-client", "", "`host:port` at which clients reach this node (default: --listen)")
	flags.StringVar(&f.config.AdvertisePeer, "advertise-peer", "", "`host:port` at which the other nodes reach this one (default: as in --initial-cluster)")
	flags.StringSliceVar(&f.initialCluster, "initial-cluster", nil, "nodes that the cluster starts with, as `name=host:port`, separated by commas")
	flags.StringSliceVar(&f.config.InitialMissing, "initial-missing", nil, "`names` in --initial-cluster that have never existed: a new cluster does not wait for them")
	flags.StringVar(&f.config.Join, "join", "", "`id` of the running cluster that this node was added to (see \"member add\")")
	flags.BoolVar(&f.config.Insecure, "insecure", false, "allow addresses that other machines can reach, without any access control")
	flags.StringVar(&f.config.ClusterSecretFile, "cluster-secret-file", "", "`file` with the secret that all nodes share (see \"keygen secret\"); needed for more than one node")
	flags.Uint64Var(&f.config.TokenFloor, "token-floor", 0, "first `token` of a new or restored cluster, above all tokens ever issued; only if the clock cannot be corrected")
	flags.StringSliceVar(&f.config.HTTPHosts, "http-hosts", nil, "additional host `names` accepted in HTTP requests")
	flags.StringVar(&f.config.Zone, "zone", "", "`zone` that this node is in, shown by status and member list")
	flags.StringVar(&f.config.LeaderZone, "leader-zone", "", "preferred `zone` of the leader; set it to the same value on all nodes")
	flags.IntVar(&f.config.SessionsPerAddress, "sessions-per-address", server.DefaultSessionsPerAddress, "maximum number of sessions per client IP address")
	flags.BoolVar(&f.print, "print-config", false, "print the effective configuration as YAML and exit")
	flags.StringVar(&f.config.AuditLog, "audit-log", "", "audit log `file`: every event of the history, one JSON object per line; older files are next to it as file.1 and so on")
	flags.Int64Var(&f.config.AuditLogBytes, "audit-log-bytes", audit.DefaultFileBytes, "start a new audit log file at this many `bytes`")
	flags.IntVar(&f.config.AuditLogFiles, "audit-log-files", audit.DefaultFiles, "number of audit log files to keep")
	flags.IntVar(&f.config.Connections, "connections", 0, "maximum number of client connections (default: as many as the open file limit allows, at most 65536)")
	flags.IntVar(&f.config.WatchesPerConnection, "watches-per-connection", 0, "maximum number of watches per connection (default: 16)")
	flags.IntVar(&f.config.ConnectionsPerAddress, "connections-per-address", 0, "maximum number of connections from one IPv4 address or IPv6 /64 network, also on the HTTP port (default: half)")
	f.force.register(flags)
	f.log.register(flags, slog.LevelInfo)
}

// knowsItsCluster refuses to create a new cluster for a fresh data directory unless told to:
// without --initial-cluster, each node would become a cluster of its own.
func knowsItsCluster(config server.Config) error {
	if len(config.InitialCluster) > 0 || config.Join != "" {
		return nil
	}
	if used, err := server.Used(config.DataDir); used || err != nil {
		return err
	}
	return usageError("--initial-cluster: %s is not a data directory yet: give the nodes that its cluster starts with; for a single node: "+
		"--initial-cluster %s=HOST:7401; a node that was added to a running cluster: --join", config.DataDir, config.Name)
}

// resolve builds the server configuration from the flags.
func (f *serverFlags) resolve(a *App) (server.Config, error) {
	config := f.config
	var err error
	if config.InitialCluster, err = parseCluster(f.initialCluster); err != nil {
		return server.Config{}, err
	}
	if config.Logger, err = f.log.logger(a.Err); err != nil {
		return server.Config{}, err
	}
	config.Version, config.Built = Version(), BuildTime()
	return config, nil
}

func parseCluster(entries []string) (map[string]string, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	nodes := map[string]string{}
	for _, entry := range entries {
		name, address, found := strings.Cut(entry, "=")
		if !found || name == "" {
			return nil, usageError("--initial-cluster: %q: must be name=host:port,name=host:port,...", entry)
		}
		if nodes[name] != "" {
			return nil, usageError("--initial-cluster: duplicate node %q", name)
		}
		if err := checkEndpoint("--initial-cluster", address); err != nil {
			return nil, err
		}
		nodes[name] = address
	}
	return nodes, nil
}

// configError replaces the field of server.Config in an error by its flag.
func configError(err error) error {
	var wrong *server.ConfigError
	if !errors.As(err, &wrong) {
		return err
	}
	if wrong.Field == server.FieldDescriptors {
		return usageError("%s", wrong.Rule) // no flag changes it
	}
	return usageError("--%s: %s", flagName(wrong.Field), fieldsToFlags.Replace(wrong.Rule))
}

// fieldsToFlags replaces the fields mentioned in a rule by flags.
var fieldsToFlags = strings.NewReplacer(
	"InitialCluster", "--initial-cluster", "InitialMissing", "--initial-missing", "PeerListen", "--peer-listen", "HTTPListen", "--http-listen",
	"HealthListen", "--health-listen", "Listen", "--listen", "Insecure", "--insecure")

// flagName converts PeerListen to peer-listen.
func flagName(field string) string {
	if rest, ok := strings.CutPrefix(field, "HTTP"); ok {
		return "http-" + flagName(rest)
	}
	var b strings.Builder
	for i, r := range field {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// serve calls run until INT or TERM, and exits the process at the second one. HUP calls hangUp, or
// acts like TERM if that is nil. If nohup has disabled HUP, it stays disabled.
func serve(ctx context.Context, run func(context.Context) error, hangUp func()) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	hangUps := make(chan struct{}, 1) // a disk that hangs must not keep TERM from being handled
	go func() {
		for range hangUps {
			hangUp()
		}
	}()
	defer close(hangUps)
	for asked := false; ; {
		select {
		case err := <-done:
			return err
		case sig := <-signals:
			if sig == syscall.SIGHUP && hangUp != nil {
				select {
				case hangUps <- struct{}{}:
				default: // one is due already
				}
				continue
			}
			if number, ok := sig.(syscall.Signal); asked && ok {
				return exitError{code: 128 + int(number)}
			}
			asked = true
			stop()
		}
	}
}

// printConfig prints the effective flags as a file for --config.
func (a *App) printConfig(flags *pflag.FlagSet) error {
	values := map[string]any{}
	flags.VisitAll(func(f *pflag.Flag) {
		if slices.Contains([]string{"config", "help", "print-config"}, f.Name) {
			return
		}
		values[f.Name] = f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values[f.Name] = list.GetSlice()
		}
		if f.Value.Type() == "bool" {
			values[f.Name] = f.Value.String() == "true"
		}
	})
	text, err := yaml.Marshal(values)
	if err != nil {
		return err
	}
	_, err = a.Out.Write(text)
	return err
}
