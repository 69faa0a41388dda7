package house

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	testName   = regexp.MustCompile(`\bTest[A-Z]\w*`)
	scriptName = regexp.MustCompile(`\baccept/[\w-]+\.sh\b`)
	fileLink   = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
)

// Pages returns the tests, acceptance scripts and files that the documentation refers to but the
// repository does not have.
func Pages(repo fs.FS) ([]string, error) {
	tests := map[string]bool{}
	_, err := check(repo, func(f *file) []string {
		if f.test {
			for _, name := range testName.FindAllString(string(f.source), -1) {
				tests[name] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var found []string
	for _, glob := range []string{"*.md", "docs/*.md", "docs/adr/*.md"} {
		pages, err := fs.Glob(repo, glob)
		if err != nil {
			return nil, err
		}
		for _, page := range pages {
			dangling, err := danglingIn(repo, page, tests)
			if err != nil {
				return nil, err
			}
			found = append(found, dangling...)
		}
	}
	slices.Sort(found)
	return found, nil
}

func danglingIn(repo fs.FS, page string, tests map[string]bool) ([]string, error) {
	content, err := fs.ReadFile(repo, page)
	if err != nil {
		return nil, err
	}
	var found []string
	missing := func(what string) { found = append(found, fmt.Sprintf("%s: there is no %s", page, what)) }
	for _, name := range testName.FindAllString(string(content), -1) {
		if !tests[name] {
			missing(name)
		}
	}
	files := scriptName.FindAllString(string(content), -1)
	for _, link := range fileLink.FindAllStringSubmatch(string(content), -1) {
		files = append(files, path.Join(path.Dir(page), link[1]))
	}
	for _, name := range files {
		if _, err := fs.Stat(repo, strings.TrimSuffix(name, "/")); err != nil {
			missing(name)
		}
	}
	return found, nil
}
