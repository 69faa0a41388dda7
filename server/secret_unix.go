//go:build unix

package server

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// checkSecretMode lets the owner read the file, and a group that this process is in, as with secrets that Kubernetes
// (fsGroup) and Docker make, or root's, as with credentials of systemd.
func checkSecretMode(info fs.FileInfo) error {
	mode := info.Mode().Perm()
	if mode&0o077 == 0 {
		return nil
	}
	if file, ok := info.Sys().(*syscall.Stat_t); ok && mode&0o037 == 0 && ownGroup(int(file.Gid), file.Uid == 0) {
		return nil
	}
	return fmt.Errorf("mode is %v: others may read or change it; want 0600, or 0440 with a group of this process (chmod 600 FILE; "+
		"Kubernetes: defaultMode 0440 and fsGroup; Docker: mode 0440)", mode)
}

// ownGroup reports whether this process is in a group, or it is root's of a file of root.
func ownGroup(group int, ofRoot bool) bool {
	if group == os.Getegid() || ofRoot && group == 0 {
		return true
	}
	groups, err := os.Getgroups()
	return err == nil && slices.Contains(groups, group)
}
