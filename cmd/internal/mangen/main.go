// Command mangen DIRECTORY writes the manual pages of lockstep, one for each of its commands, from
// the help texts. Their date is SOURCE_DATE_EPOCH, or today's without it. It is no part of the
// program: scripts/release-files runs it.
package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/lockstep-dev/lockstep/cmd/internal/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: mangen DIRECTORY")
		os.Exit(2)
	}
	if err := write(cli.Root(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "mangen:", err)
		os.Exit(1)
	}
}

// write writes the pages of cmd and the commands below it to files of dir, such as
// lockstep-member-add.1.
func write(cmd *cobra.Command, dir string) error {
	cmd.DisableAutoGenTag = true
	toMarkdown(cmd)
	return doc.GenManTree(cmd, &doc.GenManHeader{Section: "1", Source: "Lockstep " + cli.Version(), Manual: "Lockstep"}, dir)
}

// toMarkdown turns the help texts of cmd and the commands below it, which are plain text, into the
// Markdown that package doc expects. Examples stay as they are: doc does not interpret them.
func toMarkdown(cmd *cobra.Command) {
	cmd.Short, cmd.Long = escape(cmd.Short), markdown(cmd.Long)
	cmd.Use = escape(cmd.Use)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = escape(f.Usage) })
	cmd.PersistentFlags().VisitAll(func(f *pflag.Flag) { f.Usage = escape(f.Usage) })
	for _, sub := range cmd.Commands() {
		toMarkdown(sub)
	}
}

// markdown turns paragraphs of plain text into Markdown. One whose lines are indented, such as a
// table, keeps its lines.
func markdown(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		if strings.HasPrefix(p, " ") {
			paragraphs[i] = "    " + strings.ReplaceAll(p, "\n", "\n    ")
		} else {
			paragraphs[i] = escape(p)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// special matches what Markdown would not print as it is, except the back quotes around the value
// of a flag.
var special = regexp.MustCompile(`[\\*_<>#|~]`)

func escape(text string) string { return special.ReplaceAllString(text, `\$0`) }
