package cli

import (
	"github.com/spf13/cobra"
)

func (a *App) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Generate a shell completion script",
		Long: `Prints a completion script. Load it in every shell, or install it where the shell looks for such scripts. zsh needs completion
to be enabled: "autoload -U compinit; compinit". bash needs the package bash-completion (Debian: apt-get install
bash-completion, then start a new shell): without it every TAB prints an error. Names of locks and nodes are fetched from the
service, which takes at most two seconds.`,
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
