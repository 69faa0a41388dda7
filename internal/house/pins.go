package house

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Pins returns the lines of the Makefile, the scripts and the deployment files that install
// whatever version is the newest that day: "go install X@latest".
func Pins(repo fs.FS) ([]string, error) {
	var found []string
	err := fs.WalkDir(repo, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && skipped(entry.Name()) {
			return fs.SkipDir
		}
		top, _, _ := strings.Cut(name, "/")
		if entry.IsDir() || name != "Makefile" && !slices.Contains([]string{"scripts", "accept", "deploy"}, top) || path.Ext(name) == ".go" {
			return nil
		}
		content, err := fs.ReadFile(repo, name)
		if err != nil {
			return err
		}
		for i, line := range bytes.Split(content, []byte("\n")) {
			if bytes.Contains(line, []byte("@latest")) {
				found = append(found, fmt.Sprintf("%s:%d: \"@latest\" is not a version", name, i+1))
			}
		}
		return nil
	})
	return found, err
}
