package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep/client"
)

// maxPageSize is the most locks that the service returns at a time.
const maxPageSize = 1000

// A lister prints the locks page by page, so that its memory does not grow with the number of
// locks.
type lister struct {
	app      *App
	prefix   string
	limit    int // 0: all
	pageSize uint32
	json     bool

	printed int
}

func (a *App) lsCommand() *cobra.Command {
	var target targetFlags
	var out output
	l := lister{app: a}
	cmd := &cobra.Command{
		Use:     "ls [PREFIX] [flags]",
		Short:   "List the locks that are held or waited for",
		Long:    "Lists the locks that are held or waited for and whose names begin with PREFIX, in byte order\nof their names. Each page is a separate read: locks that change meanwhile may be missing, or\nlisted although they are free.",
		Example: "  lockstep ls\n  lockstep ls billing/ --limit 50\n  lockstep ls -o json | jq -r '.locks[].name'",
		Args:    upTo("PREFIX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				l.prefix = args[0]
			}
			if l.pageSize < 1 || l.pageSize > maxPageSize || l.limit < 0 {
				return usageError("--page-size must be 1 to %d, and --limit must not be negative", maxPageSize)
			}
			l.json = out == jsonOutput
			return target.withAdmin(a, func(admin *client.Admin) error { return l.list(cmd.Context(), admin) })
		},
	}
	target.register(cmd.Flags())
	out.register(cmd.Flags())
	cmd.Flags().IntVar(&l.limit, "limit", 0, "show at most this many locks (0: all)")
	cmd.Flags().Uint32Var(&l.pageSize, "page-size", 500, "number of locks to request at a time")
	return cmd
}

func (l *lister) list(ctx context.Context, admin *client.Admin) error {
	for token, first := "", true; first || token != ""; first = false {
		page, next, err := admin.Locks(ctx, l.prefix, token, l.pageSize)
		if err != nil {
			return err
		}
		if next == token && next != "" {
			return fmt.Errorf("the service returned the same page twice: try again")
		}
		token = next
		var reports []lockReport
		for _, lock := range page {
			if l.limit == 0 || l.printed+len(reports) < l.limit {
				reports = append(reports, reportLock(lock))
			}
		}
		if err := l.print(reports, first); err != nil {
			return err
		}
		if l.limit > 0 && l.printed == l.limit {
			break
		}
	}
	return l.end()
}

func (l *lister) print(page []lockReport, first bool) error {
	if l.json {
		return l.printJSON(page, first)
	}
	t, now := l.app.table(), time.Now()
	if first && len(page) > 0 {
		fmt.Fprintln(t, "NAME\tMODE\tTOKEN\tHELD FOR\tWAITING\tHOLDER")
	}
	for _, lock := range page {
		l.printed++
		if len(lock.Holders) == 0 {
			fmt.Fprintf(t, "%s\t%s\t-\t-\t%d\t-\n", printable(lock.Name), lock.Mode, lock.WaiterCount)
			continue
		}
		h := lock.Holders[0]
		who := h.who()
		if more := lock.HolderCount - 1; more > 0 {
			who += fmt.Sprintf(" and %d more", more)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%d\t%s\n", printable(lock.Name), lock.Mode, h.Token, age(now, h.Since.Time), lock.WaiterCount, who)
	}
	return t.Flush()
}

func (l *lister) printJSON(page []lockReport, first bool) error {
	if first {
		fmt.Fprint(l.app.Out, `{"locks": [`)
	}
	for _, lock := range page {
		text, err := json.Marshal(lock)
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

func (l *lister) end() error {
	if !l.json {
		return nil
	}
	_, err := fmt.Fprint(l.app.Out, "\n]}\n")
	return err
}
