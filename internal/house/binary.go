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
	imported := map[string][]string{}
	for _, f := range files {
		if !f.test {
			ours, _ := imports(f)
			imported[f.dir] = append(imported[f.dir], ours...)
		}
	}
	var found []string
	seen := map[string]bool{program: true}
	for next := []string{program}; len(next) > 0; next = next[1:] {
		for _, pkg := range imported[next[0]] {
			if seen[pkg] {
				continue
			}
			seen[pkg] = true
			next = append(next, pkg)
			if isFixture(pkg) {
				found = append(found, fmt.Sprintf("%s: imported by %s, so it is linked into %s", pkg, next[0], program))
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

func isFixture(pkg string) bool {
	return slices.ContainsFunc(fixtures, func(tree string) bool { return pkg == tree || strings.HasPrefix(pkg, tree+"/") })
}
