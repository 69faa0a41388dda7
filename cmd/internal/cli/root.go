package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// Root returns the root command of a real process, for the generator of the manual pages.
func Root() *cobra.Command { return NewApp().root() }

// root returns the root command with all the others below it, one file for each.
func (a *App) root() *cobra.Command {
	var asked bool // for the version
	root := &cobra.Command{
		Use:   "lockstep",
		Short: "A distributed lock service with leases and fencing tokens",
		Long: `Lockstep makes sure that only one process at a time works on a job, a file or a
leader role. Every lock has a lease, so it becomes free if its holder dies, and every
holder gets a fencing token larger than the one before.

Each flag can also be set as LOCKSTEP_<FLAG> in the environment, such as
LOCKSTEP_ENDPOINTS, or in a YAML file given with --config. The command line takes
precedence over the environment, and the environment over the file.`,
		Example:       "  lockstep dev\n  lockstep run billing/nightly -- ./job",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if asked {
				return a.printVersion(textOutput)
			}
			return subcommands(cmd, args)
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.fill(cmd) },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // ours has examples
	}
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(`%w: see "%s --help" for the flags`, err, cmd.CommandPath())
	})
	root.Flags().BoolVarP(&asked, "version", "V", false, "show the version of this program")
	root.PersistentFlags().String("config", "", "YAML `file` that sets flags, with \"flag: value\" lines")
	cobra.EnableCommandSorting = false
	root.SetHelpCommand(helpCommand())
	root.AddCommand(a.commands()...)
	a.offer(root)
	return root
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show help for a command",
		Example: "  lockstep help run",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, _, err := cmd.Root().Find(args)
			if err != nil || about == cmd.Root() && len(args) > 0 {
				return usageError(`no help for %q: see "lockstep --help" for the commands`, strings.Join(args, " "))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// commands returns all commands in the order of the help text.
func (a *App) commands() []*cobra.Command {
	return []*cobra.Command{
		a.runCommand(),
		a.electCommand(),
		a.holdCommand(),
		a.acquireCommand(),
		a.renewCommand(),
		a.releaseCommand(),
		a.showCommand(),
		a.lsCommand(),
		a.sessionsCommand(),
		a.historyCommand(),
		a.watchCommand(),
		a.revokeCommand(),
		a.fenceCommand(),
		a.backendsCommand(),
		a.statusCommand(),
		a.memberCommand(),
		a.upgradeCommand(),
		a.topCommand(),
		a.devCommand(),
		a.serverCommand(),
		a.keygenCommand(),
		a.snapshotCommand(),
		a.benchCommand(),
		a.demoCommand(),
		a.simCommand(),
		a.completionCommand(),
		a.versionCommand(),
	}
}

// exactly requires the named arguments, no more and no fewer.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return checkArgs(cmd, args, len(names), names)
	}
}

// upTo accepts the named arguments, or fewer.
func upTo(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return checkArgs(cmd, args, 0, names)
	}
}

func checkArgs(cmd *cobra.Command, args []string, least int, names []string) error {
	if len(args) < least {
		return missing(cmd, names[len(args)])
	}
	if len(args) > len(names) {
		return usageError("unexpected argument %q: usage: %s", args[len(names)], cmd.UseLine())
	}
	return nil
}

func missing(cmd *cobra.Command, what string) error {
	return usageError("%s is missing: usage: %s", what, strings.TrimSuffix(cmd.UseLine(), " [flags]"))
}
