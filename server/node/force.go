package node

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lockstep-dev/lockstep/server/backup"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/storage"
)

// A Force turns the data directory of a survivor, in place, into a new cluster of one node: the
// same as backing up the directory and restoring it. Grants that were acknowledged only by other
// nodes are lost.
type Force struct {
	Name, DataDir string
	Address       string         // of the node, for peers
	Wait          command.Millis // as in Restore
	Version       string
	Logger        *slog.Logger // not nil
}

// Run replaces the content of the directory. The old content is kept in a folder inside it. A crash
// in between leaves a directory that does not start until Run is called again. Run does nothing for
// a directory that it has already finished for the same name and address.
func (f Force) Run() error {
	members := map[string]string{f.Name: f.Address}
	file := filepath.Join(f.DataDir, storage.AsideBackup)
	if !storage.Replacing(vfs.Default, f.DataDir) {
		owner, _, err := storage.ReadOwner(vfs.Default, f.DataDir)
		if err != nil {
			return err
		}
		if owner.Origin != "" && owner.ClusterID == RestoredClusterID(owner.Origin, members) {
			f.Logger.Warn("this node is already a new single-node cluster: nothing to force", "cluster", owner.ClusterID)
			return nil
		}
		if err := f.extract(file); err != nil {
			return err
		}
		if err := storage.BeginReplace(vfs.Default, f.DataDir); err != nil {
			return err
		}
	}
	b, err := backup.Open(file)
	if err != nil {
		return err
	}
	if now := time.Now(); now.Before(b.Time()) {
		return fmt.Errorf("node: the clock says %s, but the directory was read at %s: set the clock", now.UTC().Format(time.RFC3339), b.Time().Format(time.RFC3339))
	}
	f.Logger.Warn("FORCING A NEW CLUSTER of this node alone: grants that only lost nodes knew are lost, all sessions end",
		"old cluster", b.ClusterID, "entry", b.Index, "next token", uint64(b.Machine.Counts().NextToken), "wait", time.Duration(f.Wait)*time.Millisecond)
	if err := storage.SetAside(vfs.Default, f.DataDir); err != nil {
		return err
	}
	cluster, err := Restore{Name: f.Name, DataDir: f.DataDir, Members: members, Wait: f.Wait}.make(b, true)
	if err != nil {
		return err
	}
	f.Logger.Warn("new single-node cluster: add other nodes as new members", "cluster", cluster)
	return storage.EndReplace(vfs.Default, f.DataDir)
}

// extract writes the backup file of the directory, whole or not at all.
func (f Force) extract(file string) error {
	tmp := file + ".tmp"
	// Left by a run that was killed.
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = Extract(f.DataDir, w, f.Name, f.Version, f.Logger)
	if err == nil {
		err = w.Sync()
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, file) // BeginReplace makes it durable, with the directory
}
