package pgserver

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
)

// places lists the directories outside PATH where systems install the programs; the newest version
// comes first.
var places = []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/sbin"}

// find returns the path of a program of the named package.
func find(program, debian string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	for _, place := range places {
		found, _ := filepath.Glob(filepath.Join(place, program)) // the patterns are valid
		if len(found) > 0 {
			return slices.MaxFunc(found, byVersion), nil
		}
	}
	return "", fmt.Errorf("%s is not installed (on Debian: apt-get install %s)", program, debian)
}

// byVersion compares paths such as /usr/lib/postgresql/15/bin/initdb. 9 comes before 15.
func byVersion(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// serverUser is the user that the servers run as: empty for the current user.
func serverUser() string {
	if os.Getuid() == 0 {
		return "postgres"
	}
	return ""
}

// makeDirectory creates a directory owned by the named user. It is directly below the directory for
// temporary files: a test's own directory may be inaccessible to other users.
func makeDirectory(owner string) (string, error) {
	dir, err := os.MkdirTemp("", "lockstep-postgres-")
	if err != nil {
		return "", err
	}
	if err := give(dir, owner); err != nil {
		os.RemoveAll(dir)
		return "", err
	}
	return dir, nil
}

// give makes the user the owner of a file.
func give(path, owner string) error {
	if owner == "" {
		return nil
	}
	u, err := user.Lookup(owner)
	if err != nil {
		return fmt.Errorf("the user that PostgreSQL runs as when started by root: %w", err)
	}
	uid, errUID := strconv.Atoi(u.Uid)
	gid, errGID := strconv.Atoi(u.Gid)
	if errUID != nil || errGID != nil {
		return fmt.Errorf("user %s has ids %s and %s", owner, u.Uid, u.Gid)
	}
	return os.Chown(path, uid, gid)
}
