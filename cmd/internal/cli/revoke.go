package cli

import (
	"errors"
	"fmt"
	"os"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
)

// A revokeReport is the output of "revoke".
type revokeReport struct {
	Name    string `json:"name"`
	Revoked int    `json:"revoked"` // number of grants ended
}

func (a *App) revokeCommand() *cobra.Command {
	var target targetFlags
	var out output
	var how client.Revocation
	var token uint64
	cmd := &cobra.Command{
		Use:   "revoke NAME --reason TEXT [flags]",
		Short: "Revoke a lock from its holder",
		Long: `Ends the current grants of a lock. The holder learns who revoked it and why. The next waiter gets
the lock once the old holder has confirmed that it stopped, or after the TTL of the holder's session.
With --now it gets the lock at once: two may then work under it at the same time, and only
the token tells them apart.

The exit code is 1 if nobody holds the lock.`,
		Example: "  lockstep revoke billing/nightly --reason 'stuck since Monday'\n  lockstep revoke billing/nightly --token 253611874320397 --reason 'host is gone' --now",
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkRevocation(args[0], how); err != nil {
				return err
			}
			how.Token = lockstep.Token(token)
			return target.withAdmin(a, func(admin *client.Admin) error {
				ended, err := admin.RevokeLock(cmd.Context(), args[0], how)
				if err != nil {
					return err
				}
				return a.printRevoked(revokeReport{args[0], ended}, out)
			})
		},
	}
	target.register(cmd.Flags())
	out.register(cmd.Flags())
	cmd.Flags().StringVar(&how.Reason, "reason", "", "`text` for the holder and the history (required)")
	cmd.Flags().StringVar(&how.By, "by", defaultBy(), "`who` revokes the lock, for the holder and the history")
	cmd.Flags().BoolVar(&how.Now, "now", false, "do not wait for the holder to stop: two may work at the same time")
	cmd.Flags().Uint64Var(&token, "token", 0, "only the grant with this token (0: every grant)")
	return cmd
}

func checkRevocation(name string, how client.Revocation) error {
	if err := lockstep.CheckName(name); err != nil {
		return err
	}
	if how.Reason == "" {
		return usageError("--reason is required")
	}
	return lockstep.CheckMetadata(map[string]string{"by": how.By, "reason": how.Reason})
}

func (a *App) printRevoked(report revokeReport, out output) error {
	if out == jsonOutput {
		if err := a.writeJSON(report); err != nil {
			return err
		}
	}
	switch {
	case report.Revoked == 0:
		return exitError{CodeBusy, errors.New("nothing to revoke: " + printable(report.Name) + " has no such grant")}
	case out == textOutput:
		fmt.Fprintf(a.Out, "%s: %d revoked\n", printable(report.Name), report.Revoked)
	}
	return nil
}

// defaultBy returns user@host.
func defaultBy() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return oneLine(name)
	}
	return oneLine(name + "@" + host)
}
