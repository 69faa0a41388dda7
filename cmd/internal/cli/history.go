package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client"
)

// maxEvents is the most events that the service returns.
const maxEvents = 1000

// An eventReport is one event of the history as JSON.
type eventReport struct {
	Number   uint64            `json:"number"`
	Kind     string            `json:"kind"`
	Session  string            `json:"session"`
	Seq      uint64            `json:"seq"`
	Token    uint64            `json:"token,omitempty"`
	Time     instant           `json:"time"` // the leader's wall clock
	By       string            `json:"by,omitempty"`
	Reason   string            `json:"reason,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

type historyReport struct {
	Name     string        `json:"name"`
	Events   []eventReport `json:"events"`   // oldest first
	Complete bool          `json:"complete"` // false if older ones may have been dropped
}

func (a *App) historyCommand() *cobra.Command {
	var (
		out    output
		target targetFlags
		limit  uint32
	)
	cmd := &cobra.Command{
		Use:     "history NAME",
		Short:   "Show who held a lock, when, and why each hold ended",
		Example: "  lockstep history billing/nightly\n  lockstep history billing/nightly --limit 1000 -o json",
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := lockstep.CheckName(args[0]); err != nil {
				return err
			}
			if limit < 1 || limit > maxEvents {
				return usageError("--limit: %d: must be 1 to %d", limit, maxEvents)
			}
			return target.withAdmin(a, func(admin *client.Admin) error {
				events, complete, err := admin.History(cmd.Context(), args[0], limit)
				if err != nil {
					return err
				}
				return a.showHistory(historyReport{args[0], eventReports(events), complete}, out)
			})
		},
	}
	cmd.Flags().Uint32Var(&limit, "limit", 100, "show at most this many of the newest events, up to 1000")
	target.register(cmd.Flags())
	out.register(cmd.Flags())
	return cmd
}

func eventReports(events []*pb.Event) []eventReport {
	list := make([]eventReport, 0, len(events))
	for _, e := range events {
		list = append(list, reportEvent(e))
	}
	return list
}

func reportEvent(e *pb.Event) eventReport {
	return eventReport{
		Number: e.GetNumber(), Kind: eventKind(e.GetKind()), Session: e.GetSession(), Seq: e.GetSeq(), Token: e.GetToken(),
		Time: instant{time.UnixMilli(int64(e.GetUnixMs())).UTC()}, By: e.GetBy(), Reason: e.GetReason(), Metadata: e.GetMetadata(),
	}
}

func eventKind(k pb.EventKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "EVENT_KIND_"))
}

func (a *App) showHistory(h historyReport, out output) error {
	if out == jsonOutput {
		return a.writeJSON(h)
	}
	if !h.Complete {
		fmt.Fprintf(a.Err, "older events are not shown: --limit %d shows all that the service remembers, and the audit logs of the nodes have all of them\n", maxEvents)
	}
	if len(h.Events) == 0 {
		_, err := fmt.Fprintf(a.Out, "%s: no events are remembered\n", printable(h.Name))
		return err
	}
	t := a.table()
	fmt.Fprintln(t, "TIME\tEVENT\tTOKEN\tHELD FOR\tSESSION\tWHO\tWHY")
	granted := map[claimOf]time.Time{}
	for _, e := range h.Events {
		token, heldFor := "-", "-"
		if e.Token > 0 {
			token = fmt.Sprint(e.Token)
		}
		claim := claimOf{e.Session, e.Seq}
		if e.Kind == "granted" {
			granted[claim] = e.Time.Time
		} else if since, ok := granted[claim]; ok {
			heldFor = age(e.Time.Time, since)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.16s\t%s\t%s\n", e.Time, e.Kind, token, heldFor, e.Session,
			claimReport{Metadata: e.Metadata}.who(), printable(why(e)))
	}
	return t.Flush()
}

// A claimOf identifies a claim: its session and its number there.
type claimOf struct {
	session string
	seq     uint64
}

func why(e eventReport) string {
	switch {
	case e.By != "":
		return "by " + e.By + ": " + e.Reason
	case e.Reason == "" && e.Kind == "expired":
		return "the lease of its session expired"
	default:
		return e.Reason
	}
}
