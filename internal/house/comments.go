package house

import (
	"fmt"
	"go/ast"
	"io/fs"
	"strings"
	"unicode/utf8"
)

// maxCommentColumns bounds a line of a comment, with a tab as one column.
const maxCommentColumns = 100

// CommentWidth returns the lines that are a comment and too long to read beside a diff. The output
// of an example is what it is.
func CommentWidth(repo fs.FS) ([]string, error) {
	return check(repo, func(f *file) []string {
		if f.generated() {
			return nil
		}
		var found []string
		output := false
		for number, line := range strings.Split(string(f.source), "\n") {
			text, is := strings.CutPrefix(strings.TrimSpace(line), "//")
			output = is && (output || strings.HasPrefix(text, " Output:") || strings.HasPrefix(text, " Unordered output:"))
			if n := utf8.RuneCountInString(line); is && !output && n > maxCommentColumns {
				found = append(found, fmt.Sprintf("%s:%d: comment of %d columns, the limit is %d", f.name, number+1, n, maxCommentColumns))
			}
		}
		return found
	})
}

// ErrorTexts returns the conditions that depend on the text of an error: a text is for people, and
// changes.
func ErrorTexts(repo fs.FS) ([]string, error) {
	return check(repo, func(f *file) []string {
		if f.test || f.generated() {
			return nil
		}
		var found []string
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			for _, condition := range conditions(n) {
				if call := errorText(condition); call != nil {
					found = append(found, f.at(call)+": a condition depends on the text of an error")
				}
			}
			return true
		})
		return found
	})
}

func conditions(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.IfStmt:
		return []ast.Expr{n.Cond}
	case *ast.ForStmt:
		return []ast.Expr{n.Cond}
	case *ast.SwitchStmt:
		return []ast.Expr{n.Tag}
	case *ast.CaseClause:
		return n.List
	}
	return nil
}

// errorText returns the call of an Error method in a condition, or nil.
func errorText(condition ast.Expr) (found *ast.CallExpr) {
	if condition == nil {
		return nil
	}
	ast.Inspect(condition, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 0 {
			if selector, ok := call.Fun.(*ast.SelectorExpr); ok && selector.Sel.Name == "Error" {
				found = call
			}
		}
		return found == nil
	})
	return found
}
