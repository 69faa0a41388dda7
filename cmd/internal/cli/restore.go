package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/server"
	"github.com/lockstep-dev/lockstep/server/backup"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/node"
)

// A restoreReport is the output of "snapshot restore".
type restoreReport struct {
	ClusterID   string  `json:"cluster_id"`
	Node        string  `json:"node"`
	DataDir     string  `json:"data_dir"`
	WaitSeconds float64 `json:"wait_seconds"` // how long nothing is granted, at least; 0: skipped
	NextToken   uint64  `json:"next_token"`   // of the backup; new tokens are above it
}

// restoreFlags are the flags of snapshot restore.
type restoreFlags struct {
	config         server.Config
	initialCluster []string
	longest        span
	skip           bool
}

func (a *App) restoreCommand() *cobra.Command {
	var f restoreFlags
	var out output
	cmd := &cobra.Command{
		Use:   "restore FILE --name NAME --data-dir DIR --initial-cluster NODES [flags]",
		Short: "Create the data directory of a node of a new cluster from a backup",
		Long: `Creates a data directory from a backup. Run it for each node of the new cluster, with the same file
and the same flags except --name and --data-dir, then start the nodes as usual with the same
--initial-cluster. DIR must not exist or be empty. If the file is invalid, nothing is written.

The new cluster gets a new id, and nodes of the old one are refused. Sessions do not survive: their
clients see them as revoked. New tokens are above any that the old cluster can have issued.

Grants that the old cluster made after the backup are unknown, so the new one grants nothing while an
old holder may still believe in its lease: for --longest-ttl and half a second, counted from when
there is a leader. Give the longest TTL that any client used if you know it. --skip-wait skips the
wait: then two holders may work under one lock, and only the token tells them apart. That is safe if
the old cluster or its clients have been down for longer than the wait.

Exit codes: 64 for an invalid command line or directory, 65 for a damaged file.`,
		Example: `  lockstep snapshot restore lockstep.backup --name n1 --data-dir /var/lib/lockstep \
    --initial-cluster n1=10.0.0.1:7401,n2=10.0.0.2:7401,n3=10.0.0.3:7401`,
		Args: exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			restore, err := f.resolve()
			if err != nil {
				return err
			}
			b, err := openBackup(args[0])
			if err != nil {
				return err
			}
			if err := checkClock(b, time.Now()); err != nil {
				return err
			}
			return a.restore(restore, b, out)
		},
	}
	out.register(cmd.Flags())
	cmd.Flags().StringVar(&f.config.Name, "name", "", "`name` of the node in the new cluster")
	cmd.Flags().StringVar(&f.config.DataDir, "data-dir", "", "`directory` to create; it must not exist or be empty")
	cmd.Flags().StringSliceVar(&f.initialCluster, "initial-cluster", nil, "nodes of the new cluster, as `name=host:port`, separated by commas")
	f.longest = span{lockstep.MaxTTL, true}
	cmd.Flags().Var(&f.longest, "longest-ttl", "hold off grants this long: the longest TTL of any client (default: the longest TTL that the service allows)")
	cmd.Flags().BoolVar(&f.skip, "skip-wait", false, "grant at once, although old holders may still be at work")
	return cmd
}

func (f *restoreFlags) resolve() (r node.Restore, err error) {
	config := f.config
	if config.InitialCluster, err = parseCluster(f.initialCluster); err != nil {
		return r, err
	}
	if len(config.InitialCluster) == 0 {
		return r, usageError("--initial-cluster is required: the nodes of the new cluster, as name=host:port separated by commas")
	}
	if err := config.CheckCluster(); err != nil {
		return r, configError(err)
	}
	if f.longest.d < time.Second || f.longest.d > lockstep.MaxTTL {
		return r, usageError("--longest-ttl: must be 1 s to %v; --skip-wait skips the wait", lockstep.MaxTTL)
	}
	// A link could point into another node's directory.
	if info, err := os.Lstat(config.DataDir); err == nil && !info.IsDir() || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, usageError("--data-dir: %s is not a directory: give one that does not exist or is empty", config.DataDir)
	}
	r = node.Restore{Name: config.Name, DataDir: config.DataDir, Members: config.InitialCluster, Wait: command.Millis(f.longest.d.Milliseconds())}
	if f.skip {
		r.Wait = 0
	}
	return r, nil
}

// checkClock rejects early what the first leader would reject as well.
func checkClock(b *backup.File, now time.Time) error {
	if built := BuildTime(); now.Before(b.Time()) || now.Before(built) {
		return usageError("the clock says %s, but the backup was taken at %s and this program was built at %s: set the clock",
			instant{now}, instant{b.Time()}, instant{built})
	}
	return nil
}

func (a *App) restore(r node.Restore, b *backup.File, out output) error {
	next := uint64(b.Machine.Counts().NextToken)
	cluster, err := r.Run(b)
	if err != nil {
		return err
	}
	wait := time.Duration(b.Machine.Recovery().Wait) * time.Millisecond
	if out == jsonOutput {
		return a.writeJSON(restoreReport{cluster, r.Name, r.DataDir, wait.Seconds(), next})
	}
	_, err = fmt.Fprintf(a.Out, "%s: created for node %s of the new cluster %s; it will grant %s\n",
		printable(r.DataDir), printable(r.Name), cluster, afterWait(wait))
	return err
}

func afterWait(wait time.Duration) string {
	if wait == 0 {
		return "at once: holders from the old cluster may still be at work"
	}
	return fmt.Sprintf("nothing for the first %v", wait)
}
