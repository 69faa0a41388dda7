package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client"
)

// promotePoll is the interval between attempts to promote while a learner catches up.
const promotePoll = 500 * time.Millisecond

// An addReport is the output of "member add" and "member replace".
type addReport struct {
	Name           string `json:"name"`
	ID             string `json:"id"`
	ClusterID      string `json:"cluster_id"`
	InitialCluster string `json:"initial_cluster"`
}

func (a *App) memberCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "member COMMAND",
		Short: "Add, promote, remove and replace nodes",
		Long: `Changes the members of the cluster, one at a time, while it serves. A new node has no vote until it
is promoted.`,
		Example: "  lockstep member list\n  lockstep member add n6 10.0.0.6:7401",
		Args:    cobra.ArbitraryArgs,
		RunE:    subcommands,
	}
	cmd.AddCommand(a.memberListCommand(), a.memberAddCommand(), a.memberPromoteCommand(), a.memberRemoveCommand(),
		a.memberReplaceCommand(), a.memberLeadCommand())
	return cmd
}

func (a *App) memberListCommand() *cobra.Command {
	var target targetFlags
	var out output
	cmd := &cobra.Command{
		Use:     "list [flags]",
		Short:   "List the members and their health",
		Long:    "Shows the members as seen by the leader or, without one, by the most up-to-date node.",
		Example: "  lockstep member list\n  lockstep member list -o json | jq -r '.[].name'",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return target.withAdmin(a, func(admin *client.Admin) error {
				report, err := askStatus(cmd.Context(), admin)
				if err != nil {
					return err
				}
				if out == jsonOutput {
					return a.writeJSON(report.Members)
				}
				return a.writeStatus(report)
			})
		},
	}
	target.register(cmd.Flags())
	out.register(cmd.Flags())
	return cmd
}

func (a *App) memberAddCommand() *cobra.Command {
	var target targetFlags
	var out output
	cmd := &cobra.Command{
		Use:   "add NAME HOST:PORT [flags]",
		Short: "Add a node, initially without a vote",
		Long: `Adds a node with a name and a peer address that no member has, and prints the flags to start it with.
Then promote it. Repeating the command before the node has started gives the same answer.`,
		Example: "  lockstep member add n6 10.0.0.6:7401",
		Args:    exactly("NAME", "HOST:PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkEndpoint("HOST:PORT", args[1]); err != nil {
				return err
			}
			return target.withAdmin(a, func(admin *client.Admin) error {
				r, err := admin.AddMember(cmd.Context(), args[0], args[1])
				if err != nil {
					return err
				}
				return a.printAdded(r, out)
			})
		},
	}
	target.register(cmd.Flags())
	out.register(cmd.Flags())
	return cmd
}

func (a *App) printAdded(r *pb.MemberAddResponse, out output) error {
	report := addReport{
		Name: r.GetMember().GetName(), ID: fmt.Sprint(r.GetMember().GetId()),
		ClusterID: r.GetClusterId(), InitialCluster: r.GetInitialCluster(),
	}
	if out == jsonOutput {
		return a.writeJSON(report)
	}
	_, err := fmt.Fprintf(a.Out, `added %[1]s. Start it with an empty data directory, its addresses and the secret of the cluster, and with
  --name %[1]s --join %[2]s --initial-cluster %[3]s
and then: lockstep member promote %[1]s
`, printable(report.Name), printable(report.ClusterID), printable(report.InitialCluster))
	return err
}

func (a *App) memberPromoteCommand() *cobra.Command {
	var target targetFlags
	wait := span{time.Minute, true}
	cmd := &cobra.Command{
		Use:     "promote NAME [flags]",
		Short:   "Give an added node a vote",
		Long:    "Waits until the node has caught up, and gives it a vote. The exit code is 1 if it does not catch up in time.",
		Example: "  lockstep member promote n6 --wait 5m",
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return target.withAdmin(a, func(admin *client.Admin) error {
				if err := promote(cmd.Context(), admin, args[0], wait.d); err != nil {
					return err
				}
				_, err := fmt.Fprintf(a.Out, "%s is now a voter\n", printable(args[0]))
				return err
			})
		},
	}
	target.register(cmd.Flags())
	cmd.Flags().Var(&wait, "wait", "how long to wait for the node to catch up")
	return cmd
}

// promote retries until the learner has caught up.
func promote(ctx context.Context, admin *client.Admin, name string, wait time.Duration) error {
	for deadline := time.Now().Add(wait); ; {
		_, err := admin.PromoteMember(ctx, name)
		if !errors.Is(err, lockstep.ErrBusy) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(promotePoll):
		}
	}
}

func (a *App) memberRemoveCommand() *cobra.Command {
	var target targetFlags
	var force bool
	cmd := &cobra.Command{
		Use:   "remove NAME [flags]",
		Short: "Remove a node permanently",
		Long: `Removes a node. It stops by itself, and its data directory cannot be reused. A leader hands over
leadership first. A removal that would not leave a majority of healthy nodes is refused without --force.`,
		Example: "  lockstep member remove n2",
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return target.withAdmin(a, func(admin *client.Admin) error {
				if err := admin.RemoveMember(cmd.Context(), args[0], force); err != nil {
					return err
				}
				_, err := fmt.Fprintf(a.Out, "removed %s\n", printable(args[0]))
				return err
			})
		},
	}
	target.register(cmd.Flags())
	cmd.Flags().BoolVar(&force, "force", false, "remove the node even if the remaining healthy nodes are not a majority")
	return cmd
}

func (a *App) memberReplaceCommand() *cobra.Command {
	var target targetFlags
	var out output
	cmd := &cobra.Command{
		Use:   "replace NAME HOST:PORT [flags]",
		Short: "Replace a node by a new one with the same name",
		Long: `For a node whose disk was lost: removes it, and adds a new one with the same name at the given peer
address, which may be the old one. Start it with an empty data directory and the flags shown, then promote it.`,
		Example: "  lockstep member replace n2 10.0.0.2:7401",
		Args:    exactly("NAME", "HOST:PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkEndpoint("HOST:PORT", args[1]); err != nil {
				return err
			}
			return target.withAdmin(a, func(admin *client.Admin) error {
				if err := admin.RemoveMember(cmd.Context(), args[0], false); err != nil {
					return err
				}
				r, err := admin.AddMember(cmd.Context(), args[0], args[1])
				if err != nil {
					return err
				}
				return a.printAdded(r, out)
			})
		},
	}
	target.register(cmd.Flags())
	out.register(cmd.Flags())
	return cmd
}

func (a *App) memberLeadCommand() *cobra.Command {
	var target targetFlags
	cmd := &cobra.Command{
		Use:     "lead [NAME] [flags]",
		Short:   "Hand over leadership",
		Long:    "Hands leadership to a node, by default to the most up-to-date one. Clients notice a pause of a few milliseconds.",
		Example: "  lockstep member lead n3",
		Args:    upTo("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			to := ""
			if len(args) == 1 {
				to = args[0]
			}
			return target.withAdmin(a, func(admin *client.Admin) error {
				leader, err := admin.HandOver(cmd.Context(), to)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(a.Out, "%s leads\n", printable(leader))
				return err
			})
		},
	}
	target.register(cmd.Flags())
	return cmd
}
