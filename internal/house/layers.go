package house

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

const modulePath = "github.com/lockstep-dev/lockstep"

// layers lists the packages from the bottom up. A package imports only packages of lower rows.
var layers = [][]string{
	{".", "api", "api/lockstep/v1", "internal/house", "server/command"},
	{"lease", "fence", "internal/testbed"},
	{"memlock", "lease/locker", "fence/filefence", "fence/httpfence"},
	{"internal/testbed/clockjump", "internal/testbed/etcdserver", "internal/testbed/pgserver", "internal/testbed/redisserver", "internal/testbed/s3server", "internal/testbed/zkserver"},
	{"locktest", "fencetest", "election", "client/session", "client/internal/wirefake"},
	{"client", "adapter/redis/redislock", "adapter/redis/redlock", "adapter/zookeeper/zklock", "adapter/etcd/etcdlock", "adapter/postgres/pglock", "adapter/redis/redisfence", "adapter/etcd/etcdfence", "adapter/s3/s3fence", "adapter/postgres/pgfence"},
	{"server/machine", "server/expiry", "server/storage"},
	{"server/transport", "server/backup", "server/audit"},
	{"server/lead"},
	{"server/replica", "server/protocol"},
	{"server/node"},
	{"server/service", "sim/check", "server/gateway/lockstep/v1"},
	{"sim", "server/gateway"},
	{"server"},
	{"sim/faulttest", "sim/conformance"},
	{"cmd/internal/backend", "cmd/internal/bench", "cmd/internal/exhaust", "cmd/internal/supervise"},
	{"cmd/internal/demo", "cmd/internal/guard"},
	{"cmd/internal/cli"},
	{"cmd/lockstep", "cmd/internal/mangen"},
	{"examples/internal/stage", "examples/internal/account", "examples/internal/locks", "examples/internal/timeline"},
	{"examples/internal/actor", "examples/internal/nodes"},
	{"examples/pause", "examples/redlock"},
}

// forbidden lists imports that the layers alone would allow.
var forbidden = map[string][]string{
	// The lock table stands alone: people read it to check its rules.
	"server/machine": {"", "api", "client", "lease"},
	"server/expiry":  {"", "api", "client", "lease", "server/command", "server/machine"},
	// The core knows nothing of the wire or of client code.
	"server/lead":    {"", "api", "client", "lease", "server/storage", "server/transport", "go.etcd.io/raft"},
	"server/replica": {"", "api", "client", "lease", "server/storage", "server/transport"},
	"server/storage": {"", "api", "client", "lease"},
	"server/audit":   {"", "api", "client", "lease", "server/machine", "server/storage"},
	"server/node":    {"client", "lease"},
	// What converts and sends commands and answers needs no lock table.
	"server/protocol": {"client", "lease", "server/machine"},
	"server/service":  {"client", "lease", "server/machine"},
	// The checker of the simulator has its own lock table, written from the rules.
	"sim/check": {"server/machine"},
	"server":    {"client", "lease", "sim"},
	// What users import from the root must not depend on what tests import.
	"lease": {"memlock"},
}

// Layers returns our imports that do not point down, and the packages missing from the table of
// layers. Test files may import anything below the program, since they are not part of it.
func Layers(repo fs.FS) ([]string, error) {
	rank := map[string]int{}
	for i, row := range layers {
		for _, pkg := range row {
			rank[pkg] = i
		}
	}
	return check(repo, func(f *file) []string {
		if f.test {
			return nil
		}
		own, known := rank[f.dir]
		if !known {
			return []string{fmt.Sprintf("%s: package %s has no place in the table of layers", f.name, f.dir)}
		}
		var found []string
		ours, others := imports(f)
		for _, imported := range others {
			if isForbidden(f.dir, imported) {
				found = append(found, fmt.Sprintf("%s: must not import %s", f.name, imported))
			}
		}
		for _, imported := range ours {
			at, known := rank[imported]
			switch {
			case !known:
				found = append(found, fmt.Sprintf("%s: imports %s, which has no place in the table of layers", f.name, imported))
			case at >= own:
				found = append(found, fmt.Sprintf("%s: imports %s, which is not below it", f.name, imported))
			case isForbidden(f.dir, imported):
				found = append(found, fmt.Sprintf("%s: must not import %s", f.name, imported))
			}
		}
		return found
	})
}

// StaleRows returns the packages of the tables that do not exist.
func StaleRows(repo fs.FS) ([]string, error) {
	files, err := parse(repo)
	if err != nil {
		return nil, err
	}
	exists := map[string]bool{}
	for _, f := range files {
		exists[f.dir] = true
	}
	var found []string
	for _, pkg := range slices.Concat(slices.Concat(layers...), slices.Collect(maps.Keys(forbidden)), pure) {
		if !exists[pkg] {
			found = append(found, pkg+": is in a table of the rules, but no such package exists")
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

func isForbidden(pkg, imported string) bool {
	for _, tree := range forbidden[pkg] {
		if tree == "" && imported == "." || tree != "" && (imported == tree || strings.HasPrefix(imported, tree+"/")) {
			return true
		}
	}
	return false
}

// imports returns the directories of the imported packages that are in this repository, and the
// paths of the others.
func imports(f *file) (ours, others []string) {
	for _, spec := range f.syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		if rest, ok := strings.CutPrefix(imported, modulePath); ok {
			ours = append(ours, path.Clean(strings.TrimPrefix(rest, "/")))
		} else {
			others = append(others, imported)
		}
	}
	return ours, others
}

// EmptyRoot returns the lines of the root go.mod that require something: importing the contract
// pulls in only the standard library.
func EmptyRoot(repo fs.FS) ([]string, error) {
	content, err := fs.ReadFile(repo, "go.mod")
	if err != nil {
		return nil, err
	}
	var found []string
	for number, line := range strings.Split(string(content), "\n") {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "", "module", "go", "//":
		default:
			found = append(found, fmt.Sprintf("go.mod:%d: %s", number+1, strings.TrimSpace(line)))
		}
	}
	return found, nil
}
