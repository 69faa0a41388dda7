package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep/cmd/internal/cli"
)

func TestEveryCommandHasAPage(t *testing.T) {
	dir := t.TempDir()
	root := cli.Root()
	if err := write(root, dir); err != nil {
		t.Fatal(err)
	}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		page := filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
		if info, err := os.Stat(page); (err != nil || info.Size() == 0) && c.IsAvailableCommand() {
			t.Errorf("%s: %v", page, err)
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	text, err := os.ReadFile(filepath.Join(dir, "lockstep.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"LOCKSTEP_<FLAG>", "--config"} {
		if !strings.Contains(strings.ReplaceAll(string(text), `\-`, "-"), want) {
			t.Errorf("lockstep.1 has no %s", want)
		}
	}
}

func TestPlainTextIsNotTakenForMarkdown(t *testing.T) {
	for text, want := range map[string]string{
		"a <b> *c* d_e":        `a \<b\> \*c\* d\_e`,
		"a\nb\n\n  x   1\n  y": "a\nb\n\n      x   1\n      y",
	} {
		if got := markdown(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
