package house

import (
	"fmt"
	"go/ast"
	"io/fs"
	"slices"
	"strings"
)

// Size limits in lines. Anything longer does more than one thing.
const (
	maxFunctionLines = 70
	maxFileLines     = 800
)

// PackageDocs returns the packages without a doc comment.
func PackageDocs(repo fs.FS) ([]string, error) {
	documented, seen := map[string]bool{}, map[string]bool{}
	_, err := check(repo, func(f *file) []string {
		if !f.test {
			seen[f.dir] = true
			documented[f.dir] = documented[f.dir] || f.syntax.Doc != nil || f.generated()
		}
		return nil
	})
	var found []string
	for dir := range seen {
		if !documented[dir] {
			found = append(found, dir+": the package has no doc comment")
		}
	}
	slices.Sort(found)
	return found, err
}

// NameDocs returns the exported names without a doc comment, outside main packages.
func NameDocs(repo fs.FS) ([]string, error) {
	return check(repo, func(f *file) []string {
		if f.test || f.generated() || f.syntax.Name.Name == "main" {
			return nil
		}
		var found []string
		for _, decl := range f.syntax.Decls {
			for _, id := range undocumented(decl) {
				found = append(found, fmt.Sprintf("%s: %s has no doc comment", f.at(id), id.Name))
			}
		}
		return found
	})
}

func undocumented(decl ast.Decl) []*ast.Ident {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && exportedReceiver(d) && !plainMethod(d) {
			return []*ast.Ident{d.Name}
		}
	case *ast.GenDecl:
		return undocumentedSpecs(d)
	}
	return nil
}

func undocumentedSpecs(d *ast.GenDecl) []*ast.Ident {
	var found []*ast.Ident
	groupDoc := d.Doc != nil
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Doc == nil && !groupDoc && s.Name.IsExported() {
				found = append(found, s.Name)
			}
			groupDoc = groupDoc || s.Doc != nil // one sentence may cover the names below it
		case *ast.ValueSpec:
			groupDoc = groupDoc || s.Doc != nil || s.Comment != nil
			for _, id := range s.Names {
				if !groupDoc && id.IsExported() {
					found = append(found, id)
				}
			}
		}
	}
	return found
}

// plainMethod reports whether a standard library interface already defines the method's meaning.
func plainMethod(d *ast.FuncDecl) bool {
	return d.Recv != nil && slices.Contains([]string{"Error", "String", "Unwrap", "Is", "Len", "Less", "Swap", "Push", "Pop"}, d.Name.Name)
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	id, ok := t.(*ast.Ident)
	return ok && id.IsExported()
}

// Sizes returns the functions and files that are too long, and init functions, which run where no
// reader expects code.
func Sizes(repo fs.FS) ([]string, error) {
	return check(repo, func(f *file) []string {
		if f.generated() || f.test {
			return nil
		}
		var found []string
		if n := strings.Count(string(f.source), "\n"); n > maxFileLines {
			found = append(found, fmt.Sprintf("%s: %d lines, the limit is %d", f.name, n, maxFileLines))
		}
		for _, decl := range f.syntax.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := f.lines(fn); n > maxFunctionLines {
				found = append(found, fmt.Sprintf("%s: %s has %d lines, the limit is %d", f.at(fn), fn.Name.Name, n, maxFunctionLines))
			}
			if fn.Recv == nil && fn.Name.Name == "init" {
				found = append(found, f.at(fn)+": init function")
			}
		}
		return found
	})
}
