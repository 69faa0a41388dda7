package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/server"
)

const (
	devPort = 7400 // of the first node; DefaultEndpoint has it
	// devStride is the distance of the ports of two nodes.
	devStride = 10
	// devStart bounds the time in which a development cluster must serve.
	devStart = 60 * time.Second
	// devLook is the pause between two looks at whether it does.
	devLook = 20 * time.Millisecond
)

// devFlags are the flags of dev.
type devFlags struct {
	nodes   int
	port    int
	dataDir string
	log     logFlags
}

func (a *App) devCommand() *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:   "dev [flags]",
		Short: "Run a whole cluster in one process, for trying it out",
		Long: `Runs a whole cluster on this machine in one process, until INT or TERM. Node i listens for
clients on --port + 10 (i-1), for its peers on the next port and for HTTP on the one behind that.
When it serves, one line "ready LOCKSTEP_ENDPOINTS=..." is printed. Without --data-dir
everything is forgotten at the end.`,
		Example: "  lockstep dev &\n  lockstep run hello -- echo it works\n  lockstep dev --nodes 5 --port 9000 --data-dir ./lockstep-data",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.dev(cmd.Context(), f)
		},
	}
	cmd.Flags().IntVar(&f.nodes, "nodes", 3, "number of nodes, 1 to "+strconv.Itoa(server.MaxNodes))
	cmd.Flags().IntVar(&f.port, "port", devPort, "port of the first node for clients (0: any free ports)")
	cmd.Flags().StringVar(&f.dataDir, "data-dir", "", "`directory` that keeps the data from one time to the next")
	f.log.register(cmd.Flags(), slog.LevelWarn)
	return cmd
}

func (f *devFlags) check() error {
	highest := 65535 - devStride*(f.nodes-1) - 2
	switch {
	case f.nodes < 1 || f.nodes > server.MaxNodes:
		return usageError("--nodes: %d: must be 1 to %d", f.nodes, server.MaxNodes)
	case f.port < 0 || f.port > highest:
		return usageError("--port: %d: must be 0 to %d for %d nodes", f.port, highest, f.nodes)
	case f.port == 0 && f.dataDir != "":
		return usageError("--data-dir needs a --port other than 0: the data belong to nodes with these ports")
	}
	return nil
}

func (a *App) dev(ctx context.Context, f devFlags) error {
	if f.dataDir == "" {
		dir, err := os.MkdirTemp("", "lockstep-dev-")
		if err != nil {
			return fmt.Errorf("make a directory for the data: %w", err)
		}
		defer os.RemoveAll(dir)
		f.dataDir = dir
	}
	logger, err := f.log.logger(a.Err)
	if err != nil {
		return err
	}
	cluster, err := newDevCluster(f, logger)
	if err != nil {
		return err
	}
	return serve(ctx, func(ctx context.Context) error { return cluster.run(ctx, a) })
}

// A devCluster is all nodes of a cluster in this process.
type devCluster struct {
	nodes     []*server.Server
	endpoints []string
}

// newDevCluster binds all ports first: when one is in use, nothing has happened yet,
// and free ports are known to all nodes.
func newDevCluster(f devFlags, logger *slog.Logger) (*devCluster, error) {
	var c devCluster
	listeners := make([]server.Listeners, f.nodes)
	peers := map[string]string{}
	for i := range listeners {
		bound, err := bindDev(f.port, i)
		listeners[i] = bound
		if err != nil {
			closeAll(listeners)
			return nil, err
		}
		peers[devName(i)] = bound.Peer.Addr().String()
		c.endpoints = append(c.endpoints, bound.Client.Addr().String())
	}
	for i, bound := range listeners {
		node, err := server.New(server.Config{
			Name:           devName(i),
			DataDir:        filepath.Join(f.dataDir, devName(i)),
			Listeners:      bound,
			InitialCluster: peers,
			Version:        Version(),
			Built:          BuildTime(),
			Logger:         logger.With("node", devName(i)),
		})
		if err != nil {
			closeAll(listeners)
			return nil, configError(err)
		}
		c.nodes = append(c.nodes, node)
	}
	return &c, nil
}

func devName(i int) string { return "n" + strconv.Itoa(i+1) }

// bindDev binds the ports of node i, counted from 0.
func bindDev(first, i int) (server.Listeners, error) {
	var bound server.Listeners
	for offset, slot := range []*net.Listener{&bound.Client, &bound.Peer, &bound.HTTP} {
		port := 0
		if first != 0 {
			port = first + devStride*i + offset
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return bound, fmt.Errorf("%w: choose other ports with --port", err)
		}
		*slot = l
	}
	return bound, nil
}

func closeAll(listeners []server.Listeners) {
	for _, l := range listeners {
		for _, one := range []net.Listener{l.Client, l.Peer, l.HTTP} {
			if one != nil {
				one.Close()
			}
		}
	}
}

func (c *devCluster) run(ctx context.Context, a *App) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, node := range c.nodes {
		g.Go(func() error { return node.Run(ctx) })
	}
	g.Go(func() error {
		if err := c.awaitReady(ctx); err != nil {
			return err
		}
		_, err := fmt.Fprintf(a.Out, "ready LOCKSTEP_ENDPOINTS=%s\n", strings.Join(c.endpoints, ","))
		return err
	})
	return g.Wait()
}

// awaitReady returns when a lock could be granted: a leader serves, and it has
// tokens to give.
func (c *devCluster) awaitReady(ctx context.Context) error {
	admin, err := client.NewAdmin(client.Config{Endpoints: c.endpoints, UnavailableAfter: devStart})
	if err != nil {
		return err
	}
	defer admin.Close()
	limit, cancel := context.WithTimeout(ctx, devStart)
	defer cancel()
	for {
		lock, err := admin.Lock(limit, "dev/ready", 1)
		if err == nil && lock.GetNextToken() > 0 {
			return nil
		}
		select {
		case <-ctx.Done(): // we were asked to end
			return nil
		case <-limit.Done():
			return errors.Join(fmt.Errorf("the cluster does not serve after %v", devStart), err)
		case <-time.After(devLook):
		}
	}
}
