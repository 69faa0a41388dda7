package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// helpDir is the package whose string literals are the help texts.
const helpDir = "cmd/internal/cli"

// foreign matches phrases that are grammatical but that no English-speaking engineer would write.
var foreign = regexp.MustCompile(`(?i)\b(?:` + strings.ReplaceAll(strings.Join([]string{
	`so long at most`, `so many`, `stands there`, `leads no longer`, `no member any more`,
	`of no use any more`, `and what is worse`, `gives? the office up`, `gives? up the office`,
	`whoever`, `belongs? into`, `for ever`, `(?:is|are) told`,
}, "|"), " ", `\s+`) + `)\b`)

// Wording returns the foreign phrases in the help texts and in the documentation.
func Wording(repo fs.FS) ([]string, error) {
	found, err := check(repo, helpWording)
	if err != nil {
		return nil, err
	}
	for _, glob := range []string{"README.md", "docs/*.md"} {
		pages, err := fs.Glob(repo, glob)
		if err != nil {
			return nil, err
		}
		for _, page := range pages {
			content, err := fs.ReadFile(repo, page)
			if err != nil {
				return nil, err
			}
			for _, at := range foreign.FindAllIndex(content, -1) {
				line := 1 + strings.Count(string(content[:at[0]]), "\n")
				found = append(found, fmt.Sprintf("%s:%d: %q", page, line, content[at[0]:at[1]]))
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

func helpWording(f *file) []string {
	if f.dir != helpDir || f.test {
		return nil
	}
	var found []string
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
			for _, phrase := range foreign.FindAllString(text.Value, -1) {
				found = append(found, fmt.Sprintf("%s: %q", f.at(text), phrase))
			}
		}
		return true
	})
	return found
}
