package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client"
)

// A sessionReport describes a session in the output of "sessions".
type sessionReport struct {
	Session     string            `json:"session"`
	TTLMS       uint64            `json:"ttl_ms"`
	ExpiresInMS uint64            `json:"expires_in_ms"` // on the leader's clock, unless it is renewed
	Holding     uint32            `json:"holding"`
	Waiting     uint32            `json:"waiting"`
	Closing     uint32            `json:"closing"` // ended claims whose names are not free yet
	Metadata    map[string]string `json:"metadata"`
}

func reportSession(s *pb.Session) sessionReport {
	report := sessionReport{
		Session: s.GetSession(), TTLMS: s.GetTtlMs(), ExpiresInMS: s.GetExpiresInMs(),
		Holding: s.GetHolding(), Waiting: s.GetWaiting(), Closing: s.GetClosing(), Metadata: s.GetMetadata(),
	}
	if report.Metadata == nil {
		report.Metadata = map[string]string{}
	}
	return report
}

// A sessionLister prints the sessions page by page.
type sessionLister struct {
	app      *App
	limit    int // 0: all
	pageSize uint32
	json     bool

	printed int
}

func (a *App) sessionsCommand() *cobra.Command {
	var target targetFlags
	var out output
	l := sessionLister{app: a}
	cmd := &cobra.Command{
		Use:   "sessions [flags]",
		Short: "List the sessions of all clients",
		Long: `Lists the sessions of all clients, ordered by id, with the number of locks that each holds and waits
for, and the rest of its lease. Each page is a separate read: sessions that start or end meanwhile may be
missing, or listed although they have ended.`,
		Example: "  lockstep sessions\n  lockstep sessions --limit 20\n  lockstep sessions -o json | jq -r '.sessions[] | select(.holding > 0) | .session'",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if l.pageSize < 1 || l.pageSize > maxPageSize || l.limit < 0 {
				return usageError("--page-size must be 1 to %d, and --limit must not be negative", maxPageSize)
			}
			l.json = out == jsonOutput
			return target.withAdmin(a, func(admin *client.Admin) error { return l.list(cmd.Context(), admin) })
		},
	}
	target.register(cmd.Flags())
	out.register(cmd.Flags())
	cmd.Flags().IntVar(&l.limit, "limit", 0, "show at most this many sessions (0: all)")
	cmd.Flags().Uint32Var(&l.pageSize, "page-size", 500, "number of sessions to request at a time")
	return cmd
}

func (l *sessionLister) list(ctx context.Context, admin *client.Admin) error {
	for token, first := "", true; first || token != ""; first = false {
		page, next, err := admin.Sessions(ctx, token, l.pageSize)
		if err != nil {
			return err
		}
		if next == token && next != "" {
			return errors.New("the service returned the same page twice: try again")
		}
		token = next
		if l.limit > 0 && l.printed+len(page) > l.limit {
			page = page[:l.limit-l.printed]
		}
		if err := l.print(page, first); err != nil {
			return err
		}
		if l.limit > 0 && l.printed == l.limit {
			break
		}
	}
	if l.json {
		_, err := fmt.Fprint(l.app.Out, "\n]}\n")
		return err
	}
	return nil
}

func (l *sessionLister) print(page []*pb.Session, first bool) error {
	if l.json {
		return l.printJSON(page, first)
	}
	t := l.app.table()
	if first && len(page) > 0 {
		fmt.Fprintln(t, "SESSION\tHOLDS\tWAITS\tTTL\tEXPIRES IN\tWHO")
	}
	for _, s := range page {
		l.printed++
		r := reportSession(s)
		who := claimReport{Metadata: r.Metadata}.who()
		if r.Closing > 0 {
			who += fmt.Sprintf(" (%d not free yet)", r.Closing)
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\n", printable(r.Session), r.Holding, r.Waiting, ms(r.TTLMS), ms(r.ExpiresInMS), who)
	}
	return t.Flush()
}

func ms(n uint64) time.Duration {
	return (time.Duration(n) * time.Millisecond).Round(100 * time.Millisecond)
}

func (l *sessionLister) printJSON(page []*pb.Session, first bool) error {
	if first {
		fmt.Fprint(l.app.Out, `{"sessions": [`)
	}
	for _, s := range page {
		text, err := json.Marshal(reportSession(s))
		if err != nil {
			return err
		}
		separator := ","
		if l.printed == 0 {
			separator = ""
		}
		l.printed++
		if _, err := fmt.Fprintf(l.app.Out, "%s\n  %s", separator, escapeJSON(text)); err != nil {
			return err
		}
	}
	return nil
}
