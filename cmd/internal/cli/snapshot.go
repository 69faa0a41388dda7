package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/server/backup"
	"github.com/lockstep-dev/lockstep/server/node"
)

// A snapshotReport describes a file in the output of "snapshot save" and "snapshot verify".
type snapshotReport struct {
	File      string `json:"file"`
	Bytes     int64  `json:"bytes"`
	SHA256    string `json:"sha256"` // of everything before it
	Format    int    `json:"format"`
	ClusterID string `json:"cluster_id"`
	Node      string `json:"node"`
	TakenAt   string `json:"taken_at"`
	Index     uint64 `json:"index"`
	Term      uint64 `json:"term"`
	Members   int    `json:"members"`
	Sessions  int    `json:"sessions"`
	Locks     int    `json:"locks"`
	Holders   int    `json:"holders"`
	NextToken uint64 `json:"next_token"`
	Version   string `json:"version"`
}

func (a *App) snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "snapshot COMMAND",
		Short:   "Back up a cluster, and create a new one from a backup",
		Long:    "Backs up the lock table, verifies a backup, and creates a new cluster from one.",
		Example: "  lockstep snapshot save lockstep.backup\n  lockstep snapshot verify lockstep.backup",
		Args:    cobra.ArbitraryArgs,
		RunE:    subcommands,
	}
	cmd.AddCommand(a.saveCommand(), a.verifyCommand(), a.restoreCommand())
	return cmd
}

func (a *App) saveCommand() *cobra.Command {
	var target targetFlags
	var out output
	var dataDir string
	var force bool
	cmd := &cobra.Command{
		Use:   "save FILE [flags]",
		Short: "Save a backup of the lock table",
		Long: `Saves everything that a node has applied, while it keeps serving. Any node will do; the first of
--endpoints to answer is used. With --data-dir, the backup is read from the directory of a stopped
node: use this when most nodes of a cluster are lost.

The file is either complete or not created at all. Its mode is 0600: it contains the names of the
locks, the metadata of the clients and, below feature level 3, the secrets of their sessions.`,
		Example: "  lockstep snapshot save lockstep-$(date +%F).backup\n  lockstep snapshot save --data-dir /var/lib/lockstep survivor.backup",
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			fill := func(w io.Writer) error {
				return target.withAdmin(a, func(admin *client.Admin) error { return admin.SaveSnapshot(cmd.Context(), w) })
			}
			if dataDir != "" {
				fill = func(w io.Writer) error { return node.Extract(dataDir, w, filepath.Base(dataDir), Version(), nil) }
			}
			b, err := saveBackup(args[0], force, fill)
			if err != nil {
				return err
			}
			return a.printSnapshot(reportSnapshot(args[0], b), out)
		},
	}
	target.register(cmd.Flags())
	out.register(cmd.Flags())
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "`directory` of a stopped node (instead of --endpoints)")
	oneOf(cmd.Flags(), "target", "data-dir")
	onlyOnCommandLine(cmd.Flags(), "data-dir", ignored) // elsewhere it is the directory of the running server
	cmd.Flags().BoolVar(&force, "force", false, "replace FILE if it exists")
	return cmd
}

// saveBackup writes FILE.tmp, checks it as a restore would, and renames it.
func saveBackup(path string, force bool, fill func(io.Writer) error) (*backup.File, error) {
	if _, err := os.Lstat(path); err == nil && !force {
		return nil, usageError("%s already exists: give another name, or use --force to replace it", path)
	}
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, usageError("%s exists: another save is running, or remove it if a killed one left it behind", tmp)
	}
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp) // already gone if all went well
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	b, err := backup.Open(tmp)
	if err != nil {
		return nil, fmt.Errorf("the backup arrived incomplete or damaged: %w", err)
	}
	return b, publish(tmp, path, force)
}

// publish renames the file durably, and replaces another one only with force.
func publish(tmp, path string, force bool) error {
	move := os.Rename
	if !force {
		move = os.Link // fails if the file was created meanwhile
	}
	if err := move(tmp, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (a *App) verifyCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "verify FILE [flags]",
		Aliases: []string{"show"},
		Short:   "Verify a backup and show what it contains",
		Long: `Reads a whole backup, verifies its checksums and its state as a restore would, and shows what it
contains. The exit code is 65 if the file is damaged or is not a backup.`,
		Example: "  lockstep snapshot verify lockstep.backup\n  lockstep snapshot show lockstep.backup -o json | jq .next_token",
		Args:    exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := openBackup(args[0])
			if err != nil {
				return err
			}
			return a.printSnapshot(reportSnapshot(args[0], b), out)
		},
	}
	out.register(cmd.Flags())
	return cmd
}

// codeData is the exit code for a file with bad content.
const codeData = 65

func openBackup(path string) (*backup.File, error) {
	b, err := backup.Open(path)
	if errors.Is(err, backup.ErrDamaged) || errors.Is(err, backup.ErrNewer) {
		return nil, exitError{codeData, err}
	}
	return b, err
}

func reportSnapshot(path string, b *backup.File) snapshotReport {
	counts := b.Machine.Counts()
	return snapshotReport{
		File: path, Bytes: b.Size, SHA256: b.Sum, Format: b.Format, ClusterID: b.ClusterID, Node: b.Node,
		TakenAt: instant{b.Time()}.String(), Index: b.Index, Term: b.Term, Members: len(b.Voters) + len(b.Learners),
		Sessions: counts.Sessions, Locks: counts.Names, Holders: counts.Holders,
		NextToken: uint64(counts.NextToken), Version: b.Version,
	}
}

func (a *App) printSnapshot(r snapshotReport, out output) error {
	if out == jsonOutput {
		return a.writeJSON(r)
	}
	_, err := fmt.Fprintf(a.Out, "%s: valid: cluster %s, node %s, taken at %s, entry %d, next token %d, %s, %s, %d bytes\n",
		printable(r.File), printable(r.ClusterID), printable(r.Node), r.TakenAt, r.Index, r.NextToken, count(uint64(r.Locks), "lock"), count(uint64(r.Sessions), "session"), r.Bytes)
	return err
}
