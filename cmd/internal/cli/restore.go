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
	"github.com/lockstep-dev/lockstep/server/machine"
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
		Short: "Make the data directory of a node of a new cluster from a backup",
		Long: `Makes a new data directory from a backup. Run it for each node of the new cluster, with the same file and
the same flags but for --name and --data-dir, and then start the nodes as usual with the same
--initial-cluster. DIR must be missing or empty. Nothing is touched when the file is not good.

The new cluster has an id of its own, and nodes of the old one are refused. Sessions do not survive:
clients are told that theirs was revoked. Tokens go on above all that the old cluster can have given.

Nobody knows what the old cluster granted behind the backup, so the new one grants nothing while an old
holder may believe in its lease: for --longest-ttl and half a second, from when a leader is there. Give the longest TTL that
any client used if you know it. --skip-wait leaves the wait out: then two may work under one lock, and only
the token tells them apart. It is right when the old cluster has been down for longer, or its clients are.

Exit codes: 64 for a wrong command line or directory, 65 for a damaged file.`,
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
	cmd.Flags().StringVar(&f.config.DataDir, "data-dir", "", "`directory` to make: missing or empty")
	cmd.Flags().StringSliceVar(&f.initialCluster, "initial-cluster", nil, "nodes of the new cluster, as `name=host:port`, separated by commas")
	f.longest = span{lockstep.MaxTTL, true}
	cmd.Flags().Var(&f.longest, "longest-ttl", "grant nothing for this long: the longest TTL of any client, the most that the service allows unless given")
	cmd.Flags().BoolVar(&f.skip, "skip-wait", false, "grant at once: old holders may then still be at work")
	return cmd
}

func (f *restoreFlags) resolve() (r node.Restore, err error) {
	config := f.config
	if config.InitialCluster, err = parseCluster(f.initialCluster); err != nil {
		return r, err
	}
	if len(config.InitialCluster) == 0 {
		return r, usageError("--initial-cluster: say which nodes the new cluster has, as name=host:port with commas")
	}
	if err := config.CheckCluster(); err != nil {
		return r, configError(err)
	}
	if f.longest.d < time.Second || f.longest.d > lockstep.MaxTTL {
		return r, usageError("--longest-ttl: want 1 s to %v; --skip-wait leaves the wait out", lockstep.MaxTTL)
	}
	// A link could point into another node's directory.
	if info, err := os.Lstat(config.DataDir); err == nil && !info.IsDir() || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, usageError("--data-dir: %s is not a directory: give one that is missing or empty", config.DataDir)
	}
	r = node.Restore{Name: config.Name, DataDir: config.DataDir, Members: config.InitialCluster, Wait: machine.Millis(f.longest.d.Milliseconds())}
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
	_, err = fmt.Fprintf(a.Out, "%s: made for node %s of the new cluster %s; it grants %s\n",
		printable(r.DataDir), printable(r.Name), cluster, afterWait(wait))
	return err
}

func afterWait(wait time.Duration) string {
	if wait == 0 {
		return "at once: holders of the old cluster may still be at work"
	}
	return fmt.Sprintf("nothing in its first %v", wait)
}
