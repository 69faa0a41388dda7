package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep/client"
)

// A watchedEvent is one line of "watch" as JSON.
type watchedEvent struct {
	Name string `json:"name"`
	// The cluster whose history this is. With the number it is the position to resume after.
	Cluster string `json:"cluster,omitempty"`
	eventReport
}

// A historyChange is the line of "watch" as JSON that says that the events after it belong to
// another history.
type historyChange struct {
	Kind    string `json:"kind"`    // "history_changed"
	Cluster string `json:"cluster"` // the cluster whose history follows
	Number  uint64 `json:"number"`  // the number after which it continues
	Was     string `json:"was"`     // the last position in the old history
}

// watchFlags are the flags of watch.
type watchFlags struct {
	prefix string
	after  string
	limit  uint64 // 0: no end
	out    output
}

func (a *App) watchCommand() *cobra.Command {
	var target targetFlags
	var f watchFlags
	cmd := &cobra.Command{
		Use:   "watch [PREFIX] [flags]",
		Short: "Follow lock events",
		Long: `Prints a line for each event of the locks whose names begin with PREFIX, by default of all locks: who was granted
which lock with which token, who waits, and how and why each claim ended. Events are numbered and arrive in order.
After a lost connection, the watch resumes with the next event, on any node: no event is repeated or skipped.

--after N starts after event N, if the service still remembers the events after it. CLUSTER:N also names the cluster
whose history N belongs to; -o json prints both as "cluster" and "number". Without --after, only new events are
printed. If the number belongs to another history, or the cluster has not reached it, the watch ends at once with 64.
If a restore replaces the cluster during a watch, a line says that the history has changed, and the events of the
new history follow from its start. INT ends the watch; it ends with 69 if no node serves for --connect-timeout.`,
		Example: "  lockstep watch\n  lockstep watch billing/ --after 4711\n  lockstep watch -o json | jq -r 'select(.kind == \"expired\") | .name'",
		Args:    upTo("PREFIX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				f.prefix = args[0]
			}
			return target.withAdmin(a, func(admin *client.Admin) error { return a.watch(cmd.Context(), admin, f) })
		},
	}
	target.register(cmd.Flags())
	f.out.register(cmd.Flags())
	cmd.Flags().StringVar(&f.after, "after", "0", "start after the event with this `number`, or CLUSTER:NUMBER (0: only new events)")
	cmd.Flags().Uint64Var(&f.limit, "limit", 0, "end after this many events (0: never)")
	return cmd
}

func (a *App) watch(ctx context.Context, admin *client.Admin, f watchFlags) error {
	from, err := client.ParsePosition(f.after)
	if err != nil {
		return usageError("--after: %w", err)
	}
	defer a.sayMajority(ctx, admin.Status)()
	printed, cluster := uint64(0), "" // the cluster whose history is being followed
	for event, err := range admin.WatchFrom(ctx, f.prefix, from) {
		if changed, ok := errors.AsType[*client.HistoryChangedError](err); ok && changed.Live {
			cluster = changed.Cluster
			err = a.printChange(changed, f.out)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		cluster = cmp.Or(cluster, admin.Cluster())
		line := watchedEvent{event.GetName(), cluster, reportEvent(event)}
		if err := a.printWatched(line, f.out); err != nil {
			return err
		}
		if printed++; printed == f.limit {
			return nil
		}
	}
	return errors.New("the watch ended")
}

// majorityEvery is the number of checks after which a watch asks whether there is a leader: a node
// that is cut off from the others still answers, but gets no news.
const majorityEvery = 5

// sayMajority reports when none of the endpoints knows a leader, and when one does again, until
// stop is called.
func (a *App) sayMajority(ctx context.Context, ask func(context.Context) []client.NodeStatus) (stop func()) {
	var said bool
	return every(ctx, func(ctx context.Context, round int) {
		if round%majorityEvery != majorityEvery-1 {
			return
		}
		out := client.OutageOf(ask(ctx))
		switch {
		case ctx.Err() != nil || said == (out != nil):
			return
		case out != nil:
			a.complain("watch", fmt.Errorf("no events can occur: %s; the watch continues when that is over", out.Summary()))
		default:
			a.complain("watch", errors.New("there is a leader again"))
		}
		said = out != nil
	})
}

func (a *App) printChange(c *client.HistoryChangedError, out output) error {
	if out == jsonOutput {
		return a.writeJSONLine(historyChange{"history_changed", c.Cluster, c.Oldest, c.Was.String()})
	}
	_, err := fmt.Fprintf(a.Out, "history changed: the cluster was replaced after event %d of %s; the events of cluster %s follow, starting with number %d\n",
		c.Was.Number, printable(c.Was.Cluster), printable(c.Cluster), c.Oldest+1)
	return err
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
	_, err := fmt.Fprintf(a.Out, "%d %s %-9s %s%s session %.16s %s\n", e.Number, e.Time, e.Kind, printable(e.Name), token, e.Session, who)
	return err
}
