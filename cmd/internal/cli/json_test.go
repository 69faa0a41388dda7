//go:build linux

package cli

import (
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// jsonCommands has a command line that prints JSON for each command that can. They run in this
// order on one service.
var jsonCommands = []struct {
	path string
	args string
}{
	{"acquire", "-n a/x --purpose test"},
	{"run", ""}, // has no JSON of its own; see below
	{"renew", ""},
	{"show", "a/x"},
	{"ls", ""},
	{"sessions", ""},
	{"status", ""},
	{"top", "--interval 0.1"},
	{"member list", ""},
	{"upgrade", "--check"},
	{"elect", "--observe a/x"}, // runs until interrupted
	{"revoke", "a/x --reason test --now"},
	{"history", "a/x"},
	{"watch", "--after 1 --limit 1"},
	{"release", ""}, // 121: it was revoked
	{"hold", "b --max-hold 1"},
	{"snapshot save", "backup"},
	{"snapshot verify", "backup"},
	{"snapshot restore", "backup --name n1 --data-dir restored --initial-cluster n1=127.0.0.1:1 --skip-wait"},
	{"member add", "n9 127.0.0.1:9"},
	{"member replace", "n9 127.0.0.1:10"},
	{"backends", ""},
	{"bench", "--duration 1 --workers 1"},
	{"sim", "--seeds 1 --duration 1s"},
	{"version", ""},
	{"fence show", "report --guard file:///tmp"},
	{"fence reset", ""}, // needs a mark; its reports are those of show
}

// skipsJSON lists the commands above that are not run. The comment on each says why.
var skipsJSON = []string{"run", "release", "fence reset", "elect"}

func TestEveryJSONHasTheSameShape(t *testing.T) {
	w := newService(t)
	for _, c := range commandsWithJSON(NewApp().root()) {
		if !slices.ContainsFunc(jsonCommands, func(j struct{ path, args string }) bool { return j.path == c }) {
			t.Errorf("%s -o json is not looked at here", c)
		}
	}
	for _, c := range jsonCommands {
		if slices.Contains(skipsJSON, c.path) {
			continue
		}
		args := append(strings.Fields(c.path), strings.Fields(c.args)...)
		out, _ := w.run(0, append(args, "-o", "json")...)
		documents := decodeAll(t, c.path, out)
		if len(documents) == 0 {
			t.Errorf("%s prints %q", c.path, out)
		}
		for _, d := range documents {
			checkShape(t, c.path, "", d)
		}
		if c.path == "acquire" {
			w.env = append(w.env, handleVariable+"="+documents[0].(map[string]any)["handle"].(string))
		}
	}
}

func commandsWithJSON(root *cobra.Command) (paths []string) {
	for _, c := range root.Commands() {
		if c.LocalFlags().Lookup("output") != nil {
			paths = append(paths, strings.TrimPrefix(c.CommandPath(), "lockstep "))
		}
		paths = append(paths, commandsWithJSON(c)...)
	}
	return paths
}

func decodeAll(t *testing.T, path, text string) (documents []any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	for {
		var v any
		switch err := d.Decode(&v); {
		case errors.Is(err, io.EOF):
			return documents
		case err != nil:
			t.Errorf("%s: %v in %q", path, err, text)
			return nil
		}
		documents = append(documents, v)
	}
}

var (
	snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	wholeTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
	anyTime   = regexp.MustCompile(`\d\d:\d\d:\d\d`)
)

// mayBeNull lists the fields that can be unknown.
var mayBeNull = []string{"applied_index", "since"}

// checkShape requires names in snake_case, lists that are not null, a single time format, and
// tokens that are integers.
func checkShape(t *testing.T, path, name string, value any) {
	t.Helper()
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if name != "metadata" && name != "counters" && !snakeCase.MatchString(key) {
				t.Errorf("%s: the field %q", path, key)
			}
			checkShape(t, path, key, inner)
		}
	case []any:
		for _, inner := range v {
			checkShape(t, path, name, inner)
		}
	case nil:
		if !slices.Contains(mayBeNull, name) {
			t.Errorf("%s: %s is null", path, name)
		}
	case string:
		if anyTime.MatchString(v) && !wholeTime.MatchString(v) {
			t.Errorf("%s: the time %s is %q", path, name, v)
		}
		if strings.Contains(name, "token") {
			t.Errorf("%s: %s is the text %q", path, name, v)
		}
	case json.Number:
		if _, err := v.Int64(); err != nil && strings.Contains(name, "token") {
			t.Errorf("%s: %s is %s", path, name, v)
		}
	}
}
