package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/lockstep-dev/lockstep/client"
)

const (
	// topScan bounds the number of locks read for a sample: ten pages.
	topScan = 10_000
	// maxTopRows bounds --limit.
	maxTopRows = 1000
	// clearScreen starts a sample in place of the previous one.
	clearScreen = "\x1b[H\x1b[2J"
)

// A topSample is the output of "top" at one moment.
type topSample struct {
	Time      instant        `json:"time"`
	Leader    string         `json:"leader"` // empty: none known
	Term      uint64         `json:"term"`
	Nodes     int            `json:"nodes"`
	Healthy   int            `json:"healthy"`
	Grants    float64        `json:"grants_per_second"` // shared grants that join other holders do not count
	Sessions  uint64         `json:"sessions"`
	Locks     uint64         `json:"locks"`
	Waiters   uint64         `json:"waiters"`
	Oldest    []topHolder    `json:"oldest_holders"`
	Hottest   []topQueue     `json:"hottest_queues"`
	Complete  bool           `json:"complete"` // false: only the first 10,000 locks were read
	Members   []memberReport `json:"members"`
	nextToken uint64
}

type topHolder struct {
	Name    string      `json:"name"`
	Waiting uint64      `json:"waiting"`
	Holder  claimReport `json:"holder"`
}

type topQueue struct {
	Name    string `json:"name"`
	Waiting uint64 `json:"waiting"`
	Holder  string `json:"holder"` // empty: nobody holds it
}

// top holds the settings of the command.
type top struct {
	app   *App
	admin *client.Admin
	rows  int
	every time.Duration
}

func (a *App) topCommand() *cobra.Command {
	var target targetFlags
	var out output
	every := span{2 * time.Second, true}
	t := top{app: a}
	cmd := &cobra.Command{
		Use:   "top [flags]",
		Short: "Watch the cluster live: grants, oldest holders, longest queues",
		Long: `Shows the leader, the grants per second, the locks held longest and those with the most waiters.
At a terminal it refreshes in place until interrupted. Elsewhere it prints one sample after another;
-o json prints one and exits. With more than 10,000 locks, only the first 10,000 in byte order of
their names are considered.`,
		Example: "  lockstep top\n  lockstep top --interval 5 --limit 20\n  lockstep top -o json | jq '.hottest_queues[0]'",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every.d < 100*time.Millisecond || every.d > time.Hour {
				return usageError("--interval: %v: must be 0.1 s to 1 h", every.d)
			}
			if t.rows < 1 || t.rows > maxTopRows {
				return usageError("--limit: %d: must be 1 to %d", t.rows, maxTopRows)
			}
			t.every = every.d
			return target.withAdmin(a, func(admin *client.Admin) error {
				t.admin = admin
				ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
				defer stop()
				return t.run(ctx, out)
			})
		},
	}
	target.register(cmd.Flags())
	out.register(cmd.Flags())
	cmd.Flags().Var(&every, "interval", "time between two samples")
	cmd.Flags().IntVar(&t.rows, "limit", 10, "show at most this many holders and queues")
	return cmd
}

// run prints samples until ctx is done, or a single one with its rate for JSON.
func (t *top) run(ctx context.Context, out output) error {
	last, err := t.sample(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s, err := t.sample(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && out == jsonOutput:
			return err
		case err != nil:
			fmt.Fprintln(t.app.Err, oneLine(err.Error())) // the next sample may succeed
			continue
		}
		s.rate(&last)
		last = s
		if out == jsonOutput {
			return t.app.writeJSON(s)
		}
		if err := t.show(&s); err != nil {
			return err
		}
	}
}

// sample asks the cluster.
func (t *top) sample(ctx context.Context) (topSample, error) {
	status, err := askStatus(ctx, t.admin)
	if err != nil {
		return topSample{}, err
	}
	s := topSample{
		Time: instant{time.Now()}, Leader: status.Leader, Term: status.Term, Nodes: len(status.Members), Members: status.Members,
		Sessions: status.Sessions, Locks: status.Locks, Waiters: status.Waiters, nextToken: status.NextToken,
		Oldest: []topHolder{}, Hottest: []topQueue{},
	}
	for _, m := range status.Members {
		if m.Health == "ok" {
			s.Healthy++
		}
	}
	if s.Leader == "" {
		return s, nil // nobody can list the locks
	}
	return s, t.scan(ctx, &s)
}

// scan reads the locks page by page and keeps the top rows.
func (t *top) scan(ctx context.Context, s *topSample) error {
	for token, seen := "", 0; seen < topScan; seen += maxPageSize {
		page, next, err := t.admin.Locks(ctx, "", token, maxPageSize)
		if err != nil {
			return err
		}
		for _, lock := range page {
			s.add(reportLock(lock))
		}
		s.cut(t.rows)
		if next == "" {
			s.Complete = true
			return nil
		}
		if next == token {
			return errors.New("the service returned the same page twice")
		}
		token = next
	}
	return nil
}

func (s *topSample) add(l lockReport) {
	holder := ""
	for _, h := range l.Holders {
		s.Oldest = append(s.Oldest, topHolder{l.Name, l.WaiterCount, h})
	}
	if len(l.Holders) > 0 {
		holder = l.Holders[0].who()
	}
	if l.WaiterCount > 0 {
		s.Hottest = append(s.Hottest, topQueue{l.Name, l.WaiterCount, holder})
	}
}

// cut sorts the rows and keeps the first ones.
func (s *topSample) cut(rows int) {
	slices.SortStableFunc(s.Oldest, func(a, b topHolder) int { return a.Holder.Since.Compare(b.Holder.Since.Time) })
	slices.SortStableFunc(s.Hottest, func(a, b topQueue) int { return cmp.Compare(b.Waiting, a.Waiting) })
	s.Oldest = s.Oldest[:min(rows, len(s.Oldest))]
	s.Hottest = s.Hottest[:min(rows, len(s.Hottest))]
}

// rate computes the grants per second since the previous sample: each grant takes a token. A count
// that fell came from another node, which lags behind.
func (s *topSample) rate(before *topSample) {
	if took := s.Time.Sub(before.Time.Time).Seconds(); took > 0 && s.nextToken > before.nextToken && before.nextToken > 0 {
		s.Grants = float64(s.nextToken-before.nextToken) / took
	}
}

// show prints a sample, at a terminal in place of the previous one.
func (t *top) show(s *topSample) error {
	rows := t.rows
	if f, ok := t.app.Out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(t.app.Out, clearScreen)
		if _, height, err := term.GetSize(int(f.Fd())); err == nil {
			const others = 6 // lines that are not rows
			rows = min(rows, max(1, (height-others)/2))
		}
	}
	leader := s.Leader
	if leader == "" {
		leader = "none"
	}
	fmt.Fprintf(t.app.Out, "%s  leader %s, term %d, %d of %d nodes healthy\n%.0f grants/s, %s, %s, %s\n",
		s.Time, printable(leader), s.Term, s.Healthy, s.Nodes, s.Grants, count(s.Locks, "lock"), count(s.Waiters, "waiter"), count(s.Sessions, "session"))
	return s.writeRows(t.app.Out, t.app, rows)
}

func (s *topSample) writeRows(w io.Writer, a *App, rows int) error {
	t := a.table()
	fmt.Fprintln(t, "HELD FOR\tLOCK\tTOKEN\tWAITING\tHOLDER")
	for _, h := range s.Oldest[:min(rows, len(s.Oldest))] {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\n", age(s.Time.Time, h.Holder.Since.Time), printable(h.Name), h.Holder.Token, h.Waiting, h.Holder.who())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t = a.table()
	fmt.Fprintln(t, "WAITING\tLOCK\tHOLDER")
	for _, q := range s.Hottest[:min(rows, len(s.Hottest))] {
		fmt.Fprintf(t, "%d\t%s\t%s\n", q.Waiting, printable(q.Name), q.Holder)
	}
	if !s.Complete && s.Leader != "" {
		fmt.Fprintf(t, "(of the first %d locks)\n", topScan)
	}
	return t.Flush()
}
