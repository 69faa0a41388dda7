package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/cmd/internal/bench"
)

const (
	// completeLimit bounds a query to the service for a completion: the user is waiting.
	completeLimit = 2 * time.Second
	// maxCompletions bounds the number of names offered.
	maxCompletions = 100
)

// flagValues lists the words that a flag accepts, by flag name.
var flagValues = map[string][]string{
	"output":     {string(textOutput), string(jsonOutput)},
	"log-level":  {"debug", "info", "warn", "error"},
	"log-format": {"text", "json"},
	"end-with":   {"parent", "stdin", "parent,stdin"},
	"workload":   {string(bench.Free), string(bench.Hot)},
}

// A completer returns the candidates for an argument that begins with word.
type completer func(a *App, cmd *cobra.Command, word string) []string

// argumentNames gives the completer for the first argument of a command, by command path. Of the
// remaining arguments, FILE completes to a file and the others to nothing.
var argumentNames = map[string]completer{
	"run": lockNames, "elect": lockNames, "hold": lockNames, "acquire": lockNames, "show": lockNames, "history": lockNames, "revoke": lockNames,
	"ls": lockNames, "watch": lockNames,
	"member promote": nodeNames, "member remove": nodeNames, "member replace": nodeNames, "member lead": nodeNames,
}

// offer sets up completion of arguments and flag values for every command below root.
func (a *App) offer(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		a.offer(cmd)
		a.offerFlags(cmd)
		path := strings.TrimPrefix(cmd.CommandPath(), "lockstep ")
		find := argumentNames[path]
		if strings.Contains(cmd.Use, " FILE") || len(cmd.ValidArgs) > 0 {
			continue
		}
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			switch {
			case find != nil && len(args) == 0:
				return find(a, cmd, word), cobra.ShellCompDirectiveNoFileComp
			case len(args) > 0 && strings.Contains(cmd.Use, "COMMAND [ARGUMENT"): // the words of the command
				return nil, cobra.ShellCompDirectiveDefault
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

func (a *App) offerFlags(cmd *cobra.Command) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		directive := cobra.ShellCompDirectiveNoFileComp
		switch kindOf(f) {
		case "file":
			directive = cobra.ShellCompDirectiveDefault
		case "directory":
			directive = cobra.ShellCompDirectiveFilterDirs
		}
		// This cannot fail: the flag exists.
		_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(flagValues[f.Name], directive))
	})
}

// kindOf returns what the help text calls the value of a flag, such as file or directory.
func kindOf(f *pflag.Flag) string {
	kind, _ := pflag.UnquoteUsage(f)
	return kind
}

// lockNames returns the names of locks in use.
func lockNames(a *App, cmd *cobra.Command, word string) (names []string) {
	a.askQuickly(cmd, func(ctx context.Context, admin *client.Admin) {
		locks, _, _ := admin.Locks(ctx, word, "", maxCompletions)
		for _, l := range locks {
			names = append(names, l.GetName())
		}
	})
	return names
}

// nodeNames returns the names of the members.
func nodeNames(a *App, cmd *cobra.Command, word string) (names []string) {
	a.askQuickly(cmd, func(ctx context.Context, admin *client.Admin) {
		best, err := bestStatus(admin.Status(ctx))
		if err != nil {
			return
		}
		for _, m := range best.GetMembers() {
			if strings.HasPrefix(m.GetName(), word) {
				names = append(names, m.GetName())
			}
		}
	})
	return names
}

// askQuickly calls ask with a connection to the service that the command line names so far. If
// there is no connection, nothing is offered and no error is printed: the user is still typing.
func (a *App) askQuickly(cmd *cobra.Command, ask func(context.Context, *client.Admin)) {
	flags := cmd.Flags()
	if a.fillIn(cmd) != nil {
		return
	}
	endpoints, _ := flags.GetStringSlice("endpoints")
	backend, _ := flags.GetString("backend")
	cluster, _ := flags.GetString("cluster")
	t := targetFlags{endpoints: endpoints, backend: backend, cluster: cluster, connect: span{completeLimit, true}}
	target, err := t.target()
	if err != nil || !target.Backend.Native() {
		return
	}
	admin, err := client.NewAdmin(target.config())
	if err != nil {
		return
	}
	defer admin.Close()
	ctx, cancel := context.WithTimeout(context.Background(), completeLimit)
	defer cancel()
	ask(ctx, admin)
}
