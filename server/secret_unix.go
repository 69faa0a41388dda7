//go:build unix

package server

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// checkSecretMode lets the owner read the file, and a group that this process is in, as with
// secrets created by Kubernetes (fsGroup) and Docker, or root's group, as with systemd credentials.
func checkSecretMode(info fs.FileInfo) error {
	mode := info.Mode().Perm()
	if mode&0o077 == 0 {
		return nil
	}
	if file, ok := info.Sys().(*syscall.Stat_t); ok && mode&0o037 == 0 && ownGroup(int(file.Gid), file.Uid == 0) {
		return nil
	}
	return fmt.Errorf("mode is %v: others can read or change it; must be 0600, or 0440 with a group of this process (chmod 600 FILE; "+
		"Kubernetes: defaultMode 0440 and fsGroup; Docker: mode 0440)", mode)
}

// ownGroup reports whether this process is in the group, or the group is root's on a file owned by
// root.
func ownGroup(group int, ofRoot bool) bool {
	if group == os.Getegid() || ofRoot && group == 0 {
		return true
	}
	groups, err := os.Getgroups()
	return err == nil && slices.Contains(groups, group)
}
