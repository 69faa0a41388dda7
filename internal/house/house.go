// Package house holds the rules of the code base that the compiler does not check: which package
// may import which, which packages must be pure, what must be documented, how long functions and
// files may get. Its tests apply the rules to the repository, and to planted violations to catch a
// rule that checks nothing.
//
// Each rule reads the source files itself and returns its violations, one per line, sorted. It does
// not ask the go command: the test cache sees the files that a test opens but not those that a
// child process opens, so a cached pass would hide a new violation.
package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
)

// A file is one parsed Go source file.
type file struct {
	name   string // slash-separated, relative to the repository root
	dir    string
	test   bool
	syntax *ast.File
	set    *token.FileSet
	source []byte
}

func (f *file) at(n ast.Node) string {
	p := f.set.Position(n.Pos())
	return fmt.Sprintf("%s:%d", f.name, p.Line)
}

func (f *file) lines(n ast.Node) int {
	return f.set.Position(n.End()).Line - f.set.Position(n.Pos()).Line + 1
}

// Generated code follows its generator's rules, not ours.
func (f *file) generated() bool { return ast.IsGenerated(f.syntax) }

// A sourceTree is a repository whose files are parsed once for all rules. Any other fs.FS is parsed
// for each.
type sourceTree struct {
	fs.FS
	once func() ([]*file, error)
}

func newSourceTree(repo fs.FS) sourceTree {
	return sourceTree{repo, sync.OnceValues(func() ([]*file, error) { return parseAll(repo) })}
}

func parse(repo fs.FS) ([]*file, error) {
	if tree, ok := repo.(sourceTree); ok {
		return tree.once()
	}
	return parseAll(repo)
}

// parseAll reads all Go files of the repository except those that no build uses.
func parseAll(repo fs.FS) ([]*file, error) {
	var files []*file
	err := fs.WalkDir(repo, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if skipped(entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parseFile(repo, name)
		if err != nil {
			return fmt.Errorf("parse %s: %w", name, err)
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

func skipped(folder string) bool {
	return folder == "testdata" || folder != "." && strings.HasPrefix(folder, ".")
}

func parseFile(repo fs.FS, name string) (*file, error) {
	source, err := fs.ReadFile(repo, name)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &file{
		name: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
		syntax: syntax, set: set, source: source,
	}, nil
}

// check parses the repository and collects what rule finds in each file.
func check(repo fs.FS, rule func(*file) []string) ([]string, error) {
	files, err := parse(repo)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, f := range files {
		found = append(found, rule(f)...)
	}
	slices.Sort(found)
	return found, nil
}
