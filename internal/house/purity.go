package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// pure lists the packages that make decisions. The same input gives the same output: the replicas
// of a cluster and the simulator rely on it.
var pure = []string{"server/command", "server/machine", "server/expiry", "server/lead", "server/replica", "server/protocol", "client/session"}

var impureImports = []string{"math/rand", "math/rand/v2", "crypto/rand", "os", "net", "sync", "context"}

var clockCalls = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// Purity returns what a pure package must not contain: goroutines, channels, select, the clock,
// randomness, locks, and loops over a map whose order is not explained. A comment with the word
// "order" on the same line or just above explains a loop over a map.
func Purity(repo fs.FS) ([]string, error) {
	files, err := parse(repo)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, dir := range pure {
		var of []*file
		for _, f := range files {
			if f.dir == dir && !f.test {
				of = append(of, f)
			}
		}
		maps := mapNames(of)
		for _, f := range of {
			found = append(found, impurities(f, maps)...)
		}
	}
	slices.Sort(found)
	return found, nil
}

func impurities(f *file, maps map[string]bool) []string {
	var found []string
	add := func(n ast.Node, what string) { found = append(found, fmt.Sprintf("%s: %s", f.at(n), what)) }
	for _, spec := range f.syntax.Imports {
		if name, _ := strconv.Unquote(spec.Path.Value); slices.Contains(impureImports, name) {
			add(spec, "imports "+name)
		}
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			add(n, "starts a goroutine")
		case *ast.SelectStmt:
			add(n, "selects")
		case *ast.ChanType:
			add(n, "uses a channel")
		case *ast.SendStmt:
			add(n, "sends on a channel")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				add(n, "receives from a channel")
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clockCalls, n.Sel.Name) {
				add(n, "reads the clock with time."+n.Sel.Name)
			}
		case *ast.RangeStmt:
			if rangesOverMap(n, maps) && !explainsOrder(f, n) {
				add(n, "loops over a map without a word on its order")
			}
		}
		return true
	})
	return found
}

// mapNames collects the names of variables, fields and parameters that a package declares as maps.
// Matching by name finds a few that are not maps, but misses none.
func mapNames(files []*file) map[string]bool {
	names := map[string]bool{}
	for _, f := range files {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				if isMap(n.Type) {
					addNames(names, n.Names)
				}
			case *ast.ValueSpec:
				if isMap(n.Type) {
					addNames(names, n.Names)
				}
			case *ast.AssignStmt:
				for i, right := range n.Rhs {
					if id, ok := n.Lhs[min(i, len(n.Lhs)-1)].(*ast.Ident); ok && makesMap(right) {
						names[id.Name] = true
					}
				}
			}
			return true
		})
	}
	return names
}

func isMap(e ast.Expr) bool { _, ok := e.(*ast.MapType); return ok }

func addNames(names map[string]bool, ids []*ast.Ident) {
	for _, id := range ids {
		names[id.Name] = true
	}
}

func makesMap(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CompositeLit:
		return isMap(e.Type)
	case *ast.CallExpr:
		id, ok := e.Fun.(*ast.Ident)
		return ok && id.Name == "make" && len(e.Args) > 0 && isMap(e.Args[0])
	}
	return false
}

func rangesOverMap(loop *ast.RangeStmt, maps map[string]bool) bool {
	switch x := loop.X.(type) {
	case *ast.Ident:
		return maps[x.Name]
	case *ast.SelectorExpr:
		return maps[x.Sel.Name]
	case *ast.CallExpr:
		sel, ok := x.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		pkg, ok := sel.X.(*ast.Ident)
		return ok && pkg.Name == "maps"
	}
	return false
}

func explainsOrder(f *file, loop *ast.RangeStmt) bool {
	line := f.set.Position(loop.Pos()).Line
	for _, group := range f.syntax.Comments {
		first, last := f.set.Position(group.Pos()).Line, f.set.Position(group.End()).Line
		if (last == line-1 || first == line) && strings.Contains(group.Text(), "order") {
			return true
		}
	}
	return false
}
