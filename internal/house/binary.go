package house

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// program is the package of the program that users install.
const program = "cmd/lockstep"

// fixtures are the packages, with those below them, that serve tests and examples.
var fixtures = []string{
	"examples", "fencetest", "internal", "locktest", "sim/conformance", "sim/faulttest", "client/internal/wirefake", "cmd/internal/exhaust",
}

// Binary returns the fixtures and examples that are linked into the program, each with a package
// that imports it. It follows the imports of all files but tests, whatever system they are for.
func Binary(repo fs.FS) ([]string, error) {
	files, err := parse(repo)
	if err != nil {
		return nil, err
	}
	imports := map[string][]string{}
	for _, f := range files {
		if !f.test {
			imports[f.dir] = append(imports[f.dir], ours(f)...)
		}
	}
	var found []string
	seen := map[string]bool{program: true}
	for next := []string{program}; len(next) > 0; next = next[1:] {
		for _, imported := range imports[next[0]] {
			if seen[imported] {
				continue
			}
			seen[imported] = true
			next = append(next, imported)
			if isFixture(imported) {
				found = append(found, fmt.Sprintf("%s: imported by %s, so it is linked into %s", imported, next[0], program))
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

func isFixture(pkg string) bool {
	return slices.ContainsFunc(fixtures, func(tree string) bool { return pkg == tree || strings.HasPrefix(pkg, tree+"/") })
}
