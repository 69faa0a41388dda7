package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestTheManualNamesEveryCommandAndFlag(t *testing.T) {
	page, err := os.ReadFile("../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range visible(NewApp().root()) {
		if !strings.Contains(string(page), cmd.Name()) {
			t.Errorf("docs/cli.md lacks the command %s", cmd.Name())
		}
		if cmd.Example == "" {
			t.Errorf("%s --help has no example", cmd.Name())
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !strings.Contains(string(page), "--"+f.Name) {
				t.Errorf("docs/cli.md lacks --%s of %s", f.Name, cmd.Name())
			}
		})
	}
}

func visible(root *cobra.Command) []*cobra.Command {
	var list []*cobra.Command
	for _, cmd := range root.Commands() {
		if !cmd.Hidden && cmd.Name() != "help" {
			list = append(list, cmd)
		}
	}
	return list
}
