package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep/client"
)

// A watchedEvent is one line of "watch" as JSON.
type watchedEvent struct {
	Name string `json:"name"`
	eventReport
}

// watchFlags are the flags of watch.
type watchFlags struct {
	prefix string
	after  uint64
	limit  uint64 // 0: no end
	out    output
}

func (a *App) watchCommand() *cobra.Command {
	var target targetFlags
	var f watchFlags
	cmd := &cobra.Command{
		Use:   "watch [PREFIX] [flags]",
		Short: "Follow what happens to locks",
		Long: `Prints a line for each thing that happens to the locks whose names begin with PREFIX, all without one: who was granted
which lock and which token, who waits, and how and why it ended. Events are numbered and come in order; after a lost
connection the watch goes on with the next one by itself, on any node, none twice and none left out.

--after N begins behind the event N, as long as the service remembers it. Without it only new events
are told. Ends with INT, or with 69 when no node serves for --connect-timeout.`,
		Example: "  lockstep watch\n  lockstep watch billing/ --after 4711\n  lockstep watch -o json | jq -r 'select(.kind == \"expired\") | .name'",
		Args:    upTo("PREFIX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				f.prefix = args[0]
			}
			return target.withAdmin(func(admin *client.Admin) error { return a.watch(cmd.Context(), admin, f) })
		},
	}
	target.register(cmd.Flags())
	f.out.register(cmd.Flags())
	cmd.Flags().Uint64Var(&f.after, "after", 0, "begin behind the event with this `number` (0: only new events)")
	cmd.Flags().Uint64Var(&f.limit, "limit", 0, "end after so many events (0: never)")
	return cmd
}

func (a *App) watch(ctx context.Context, admin *client.Admin, f watchFlags) error {
	printed := uint64(0)
	for event, err := range admin.Watch(ctx, f.prefix, f.after) {
		if err != nil {
			return err
		}
		line := watchedEvent{event.GetName(), reportEvent(event)}
		if err := a.printWatched(line, f.out); err != nil {
			return err
		}
		if printed++; printed == f.limit {
			return nil
		}
	}
	return errors.New("the watch ended")
}

func (a *App) printWatched(e watchedEvent, out output) error {
	if out == jsonOutput {
		return a.writeJSONLine(e)
	}
	token := ""
	if e.Token > 0 {
		token = fmt.Sprintf(" token %d", e.Token)
	}
	who := claimReport{Metadata: e.Metadata}.who()
	if reason := why(e.eventReport); reason != "" {
		who += " (" + printable(reason) + ")"
	}
	_, err := fmt.Fprintf(a.Out, "%d %s %-9s %s%s session %.16s %s\n", e.Number, e.Time.Local().Format("15:04:05.000"), e.Kind, printable(e.Name), token, e.Session, who)
	return err
}
