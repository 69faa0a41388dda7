//go:build linux

package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// offered returns the completions of the last word, and whether files are offered too.
func offered(t *testing.T, out string) (words []string, files bool) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := lines[len(lines)-1]
	if !strings.HasPrefix(last, ":") {
		t.Fatalf("%q", out)
	}
	return lines[:len(lines)-1], last == ":0" || last == ":16"
}

func TestValuesAreCompleted(t *testing.T) {
	for line, want := range map[string]string{
		"show -o ":          "text json",
		"run --log-level ":  "debug info warn error",
		"run --end-with ":   "parent stdin parent,stdin",
		"bench --workload ": "free hot",
		"completion ":       "bash zsh fish powershell",
		"run --ttl ":        "",
		"status ":           "",
	} {
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		code, out, _ := invoke(nil, args...)
		words, files := offered(t, out)
		if code != 0 || strings.Join(words, " ") != want || files {
			t.Errorf("%q: %q, files %v, want %q", line, words, files, want)
		}
	}
	for _, line := range []string{"acquire --handle-file ", "snapshot verify ", "run x -- ", "run x --config ", "server --data-dir "} {
		_, out, _ := invoke(nil, append([]string{"__complete"}, strings.Split(line, " ")...)...)
		if words, files := offered(t, out); len(words) != 0 || !files {
			t.Errorf("%q: %q, files %v, want files", line, words, files)
		}
	}
}

func TestEveryFlagThatNamesAFileCompletesAsOne(t *testing.T) {
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			named := strings.HasSuffix(f.Name, "-file") || strings.HasSuffix(f.Name, "-dir") || f.Name == "svg" || f.Name == "audit-log"
			if kind := kindOf(f); named != (kind == "file" || kind == "directory") && f.Name != "config" {
				t.Errorf("%s --%s takes a %q", c.CommandPath(), f.Name, kind)
			}
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(NewApp().root())
}

func TestNamesOfLocksAndNodesAreCompleted(t *testing.T) {
	w := newService(t)
	for _, name := range []string{"a/1", "a/2", "b"} {
		w.run(0, "acquire", "-n", name)
	}
	for line, want := range map[string]string{
		"show ":            "a/1 a/2 b",
		"revoke a/":        "a/1 a/2",
		"run a":            "a/1 a/2",
		"ls b":             "b",
		"member promote ":  "n1",
		"member lead x":    "",
		"show x ":          "",
		"history -o json ": "a/1 a/2 b",
	} {
		out, _ := w.run(0, append([]string{"__complete"}, strings.Split(line, " ")...)...)
		if words, files := offered(t, out); !slices.Equal(words, strings.Fields(want)) || files {
			t.Errorf("%q: %q, files %v, want %q", line, words, files, want)
		}
	}
	out, _ := w.run(0, "__complete", "show", "--endpoints", "127.0.0.1:1", "")
	if words, files := offered(t, out); len(words) != 0 || files {
		t.Errorf("without a service: %q, files %v", words, files)
	}
}
