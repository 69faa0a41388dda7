package client_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(package .*?)^```$")

// TestProgramsOfTheDocsCompile vets each Go block on a page that is a complete file. There must be
// at least as many as today.
func TestProgramsOfTheDocsCompile(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, programs := inModule(t), 0
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range goBlock.FindAllStringSubmatch(string(text), -1) {
			programs++
			vet(t, page, filepath.Join(dir, fmt.Sprintf("p%d", programs)), block[1])
		}
	}
	if programs < 4 {
		t.Errorf("%d whole programs in the docs, want at least 4", programs)
	}
}

// inModule creates a directory in this module, since the programs import it and its requirements.
func inModule(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(".", "_docs-") // not matched by "./..."
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func vet(t *testing.T, page, dir, program string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "vet", "./"+dir).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s\n%s", page, err, out, strings.TrimSpace(program))
	}
}
