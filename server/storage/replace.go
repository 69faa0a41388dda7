package storage

import (
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Names in a directory whose content is being, or was, replaced by a new cluster's.
const (
	replacingName = "REPLACING" // exists while it is being replaced
	asidePrefix   = "replaced-" // the previous content
	asideLimit    = 1000
)

// AsideBackup is the name of the backup in the directory from which a replacement is made.
const AsideBackup = asidePrefix + "by.backup"

func ofReplacement(name string) bool {
	return name == replacingName || strings.HasPrefix(name, asidePrefix)
}

// Replacing reports whether the content of the directory is being replaced: BeginReplace was
// called, and EndReplace was not.
func Replacing(fsys vfs.FS, dir string) bool {
	_, err := fsys.Stat(fsys.PathJoin(dir, replacingName))
	return err == nil
}

// BeginReplace durably records that the content is being replaced. Until EndReplace, the directory
// can be opened only with Config.Replacing.
func BeginReplace(fsys vfs.FS, dir string) error { return writeFile(fsys, dir, replacingName, nil) }

// SetAside moves everything in the directory, except what belongs to the replacement itself, into a
// new folder in it. It may be called again after a crash. Nothing is deleted.
func SetAside(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	aside := ""
	for n := 1; aside == "" && n <= asideLimit; n++ {
		name := fmt.Sprintf("%s%03d", asidePrefix, n)
		if _, err := fsys.Stat(fsys.PathJoin(dir, name)); err != nil {
			aside = fsys.PathJoin(dir, name)
		}
	}
	if aside == "" {
		return fmt.Errorf("storage: %s has %d directories %s...: remove old ones", dir, asideLimit, asidePrefix)
	}
	if err := fsys.MkdirAll(aside, 0o700); err != nil {
		return err
	}
	for _, name := range names {
		if name == lockName || name == "lost+found" || ofReplacement(name) {
			continue
		}
		if err := fsys.Rename(fsys.PathJoin(dir, name), fsys.PathJoin(aside, name)); err != nil {
			return err
		}
	}
	if err := syncDir(fsys, aside); err != nil {
		return err
	}
	return syncDir(fsys, dir)
}

// EndReplace durably records that the new content is complete.
func EndReplace(fsys vfs.FS, dir string) error {
	if err := fsys.Remove(fsys.PathJoin(dir, replacingName)); err != nil {
		return err
	}
	return syncDir(fsys, dir)
}
