package cli

import (
	"github.com/spf13/cobra"
)

func (a *App) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print what makes a shell complete commands, flags, values and names",
		Long: `Prints a script for the shell. Load it in each shell, or put it where the shell looks for such scripts. In zsh
completion must be on: "autoload -U compinit; compinit". In bash it needs the package bash-completion (Debian: apt-get install
bash-completion, then a new shell): without it every TAB is an error. Names of locks and nodes are asked of the service, for two
seconds at most.`,
		Example: `  source <(lockstep completion bash)
  lockstep completion bash > /etc/bash_completion.d/lockstep
  lockstep completion zsh > "${fpath[1]}/_lockstep"
  lockstep completion fish > ~/.config/fish/completions/lockstep.fish`,
		Args:      exactly("SHELL"),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch root := cmd.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.Out, true)
			case "zsh":
				return root.GenZshCompletion(a.Out)
			case "fish":
				return root.GenFishCompletion(a.Out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.Out)
			default:
				return usageError("unknown shell %q: want bash, zsh, fish or powershell", args[0])
			}
		},
	}
}
