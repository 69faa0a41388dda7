package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep/server"
)

const (
	devPort = 7400 // of the first node; see DefaultEndpoint
	// devStride is the distance between the ports of two nodes.
	devStride = 10
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
		Short: "Run a whole cluster in one process, to try it out",
		Long: `Runs a whole cluster on this machine in one process, until INT or TERM. Node i listens for
clients on --port + 10 (i-1), and on the next three ports for its peers, for the JSON API, and for health checks
and metrics: 7400 to 7403, 7410 to 7413 and so on.
When the cluster is ready to serve, one line "ready LOCKSTEP_ENDPOINTS=..." is printed.
Without --data-dir all data is deleted at the end.`,
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
	cmd.Flags().StringVar(&f.dataDir, "data-dir", "", "`directory` in which data is kept between runs")
	f.log.register(cmd.Flags(), slog.LevelWarn)
	return cmd
}

func (f *devFlags) check() error {
	highest := 65535 - devStride*(f.nodes-1) - 3
	switch {
	case f.nodes < 1 || f.nodes > server.MaxNodes:
		return usageError("--nodes: %d: must be 1 to %d", f.nodes, server.MaxNodes)
	case f.port < 0 || f.port > highest:
		return usageError("--port: %d: must be 0 to %d for %d nodes", f.port, highest, f.nodes)
	case f.port == 0 && f.dataDir != "":
		return usageError("--data-dir needs a --port other than 0: the data belongs to nodes with fixed ports")
	}
	return nil
}

func (a *App) dev(ctx context.Context, f devFlags) error {
	if f.dataDir == "" {
		dir, err := os.MkdirTemp("", "lockstep-dev-")
		if err != nil {
			return fmt.Errorf("create a data directory: %w", err)
		}
		defer os.RemoveAll(dir)
		f.dataDir = dir
	}
	logger, err := f.log.logger(a.Err)
	if err != nil {
		return err
	}
	cluster, err := server.NewCluster(server.ClusterConfig{
		Nodes:   f.nodes,
		DataDir: f.dataDir,
		Port:    f.port,
		Version: Version(),
		Built:   BuildTime(),
		Logger:  logger,
		OnReady: func(endpoints []string) {
			fmt.Fprintf(a.Out, "ready LOCKSTEP_ENDPOINTS=%s\n", strings.Join(endpoints, ","))
		},
	})
	if err != nil {
		return configError(err)
	}
	return serve(ctx, func(ctx context.Context) error {
		err := cluster.Run(ctx)
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%w: choose other ports with --port", err)
		}
		return configError(err)
	}, nil)
}
