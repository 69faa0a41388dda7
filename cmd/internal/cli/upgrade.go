package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client"
)

// An upgradeReport is the output of "upgrade".
type upgradeReport struct {
	FromLevel uint32         `json:"from_level"`
	ToLevel   uint32         `json:"to_level"` // with --check: what it would be
	Raised    bool           `json:"raised"`
	Members   []memberReport `json:"members"`
}

func (a *App) upgradeCommand() *cobra.Command {
	var target targetFlags
	var out output
	var to uint32
	var check bool
	cmd := &cobra.Command{
		Use:   "upgrade [flags]",
		Short: "Raise the feature level of the cluster after upgrading its nodes",
		Long: `First replace all nodes by a newer version, one by one: until then the cluster stays at its
current feature level, and each node can go back to the previous version. This command then
raises the level to the newest that all nodes support. This cannot be undone: a node of an
older version can no longer take part.

Nothing is changed while a member is down or runs a version that does not support the level: the
exit code is 1, and the message names the member.`,
		Example: "  lockstep upgrade --check\n  lockstep upgrade",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return target.withAdmin(a, func(admin *client.Admin) error {
				r, err := admin.Upgrade(cmd.Context(), to, check)
				if err != nil {
					return err
				}
				return a.printUpgrade(r, check, out)
			})
		},
	}
	target.register(cmd.Flags())
	out.register(cmd.Flags())
	cmd.Flags().Uint32Var(&to, "to", 0, "the `level` to raise to (0: the newest that any member supports)")
	cmd.Flags().BoolVar(&check, "check", false, "only report whether the level can be raised, and what each member supports")
	return cmd
}

func (a *App) printUpgrade(r *pb.UpgradeResponse, check bool, out output) error {
	from, to := r.GetFromLevel(), r.GetToLevel()
	report := upgradeReport{from, to, !check && from != to, reportMembers(r.GetMembers())}
	if out == jsonOutput {
		return a.writeJSON(report)
	}
	switch {
	case from == to:
		fmt.Fprintf(a.Out, "the cluster is at feature level %d: there is nothing to raise\n", to)
	case check:
		fmt.Fprintf(a.Out, "the cluster is at feature level %d and can be raised to %d: \"lockstep upgrade\" does it\n", from, to)
	default:
		fmt.Fprintf(a.Out, "the cluster is at feature level %d now (before: %d)\n", to, from)
	}
	t := a.table()
	fmt.Fprintln(t, "NODE\tROLE\tCAN")
	for _, m := range report.Members {
		fmt.Fprintf(t, "%s\t%s\t%s\n", printable(m.Name), printable(m.Role), orDash(m.FeatureLevel))
	}
	return t.Flush()
}
