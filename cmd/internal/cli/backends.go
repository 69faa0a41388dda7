package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lockstep-dev/lockstep/cmd/internal/backend"
)

// A backendReport is what one backend promises.
type backendReport struct {
	Scheme           string   `json:"scheme"`
	Example          string   `json:"example"`
	TTLMS            int64    `json:"ttl_ms"`
	GraceMS          int64    `json:"grace_ms"` // the lock of a dead holder is free after at most ttl + grace
	Fenced           bool     `json:"fenced"`
	FIFO             bool     `json:"fifo"`
	Shared           bool     `json:"shared"`
	Permits          bool     `json:"permits"`
	Multi            bool     `json:"multi"`
	LockDelay        bool     `json:"lock_delay"`
	SurvivesFailover bool     `json:"survives_failover"`
	ClockBound       bool     `json:"clock_bound"`
	Notes            []string `json:"notes"`
}

func (a *App) backendsCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "backends",
		Short: "Show what each backend promises",
		Long: `Shows the backends that --backend accepts, and what each of them promises: whether
a guard can rely on its tokens, whether waiters are served in order, what it supports
besides exclusive locks, and what a failure does to it. It contacts no server.`,
		Example: "  lockstep backends\n  lockstep backends -o json | jq '.[] | select(.fenced) | .scheme'",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			all, err := backend.Summaries()
			if err != nil {
				return err
			}
			reports := make([]backendReport, len(all))
			for i, s := range all {
				reports[i] = reportBackend(s)
			}
			if out == jsonOutput {
				return a.writeJSON(reports)
			}
			return writeBackends(a.Out, reports)
		},
	}
	cmd.AddCommand(a.schemaCommand())
	out.register(cmd.Flags())
	return cmd
}

func reportBackend(s backend.Summary) backendReport {
	c := s.Capabilities
	return backendReport{
		Scheme: s.Scheme, Example: s.Example, TTLMS: c.TTL.Milliseconds(), GraceMS: c.Grace.Milliseconds(),
		Fenced: c.Fenced, FIFO: c.FIFO, Shared: c.Shared, Permits: c.Permits, Multi: c.Multi, LockDelay: c.LockDelay,
		SurvivesFailover: c.SurvivesFailover, ClockBound: c.ClockBound, Notes: append([]string{}, c.Notes...),
	}
}

// promiseColumns are the columns of the table after the name.
var promiseColumns = []struct {
	title string
	of    func(backendReport) bool
}{
	{"fenced", func(r backendReport) bool { return r.Fenced }},
	{"in order", func(r backendReport) bool { return r.FIFO }},
	{"shared", func(r backendReport) bool { return r.Shared }},
	{"permits", func(r backendReport) bool { return r.Permits }},
	{"several", func(r backendReport) bool { return r.Multi }},
	{"delay", func(r backendReport) bool { return r.LockDelay }},
	{"failover", func(r backendReport) bool { return r.SurvivesFailover }},
	{"clock-bound", func(r backendReport) bool { return r.ClockBound }},
}

func writeBackends(w io.Writer, reports []backendReport) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "BACKEND")
	for _, c := range promiseColumns {
		fmt.Fprintf(table, "\t%s", strings.ToUpper(c.title))
	}
	fmt.Fprintln(table)
	for _, r := range reports {
		fmt.Fprint(table, r.Scheme)
		for _, c := range promiseColumns {
			fmt.Fprintf(table, "\t%s", map[bool]string{true: "yes", false: "-"}[c.of(r)])
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range reports {
		fmt.Fprintf(w, "\n%s\n", r.Example)
		for _, note := range r.Notes {
			fmt.Fprintf(w, "  %s\n", note)
		}
	}
	return nil
}

func (a *App) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the SQL for the table of the Postgres backend",
		Long: `Prints the SQL statements that create the table of the Postgres backend. Review them,
then run them once as a user who may create tables. Running them again is harmless.`,
		Example: "  lockstep backends schema | psql postgres://admin@127.0.0.1/app",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			statements, err := backend.PostgresSchema()
			if err != nil {
				return err
			}
			_, err = io.WriteString(a.Out, statements)
			return err
		},
	}
}
