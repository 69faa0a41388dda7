package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/cmd/internal/guard"
	"github.com/lockstep-dev/lockstep/fence"
)

// A markReport is the mark of a guarded resource.
type markReport struct {
	Backend string `json:"backend"` // like lock, empty before the first grant
	Lock    string `json:"lock"`
	Token   uint64 `json:"token"`   // the highest one seen
	Written uint64 `json:"written"` // the one of the last write; 0: none
}

// A fenceReport is the output of "fence show".
type fenceReport struct {
	Resource string `json:"resource"`
	Store    string `json:"store"` // its kind: the whole URL may contain a password
	markReport
}

// A resetReport is the output of "fence reset".
type resetReport struct {
	Resource string     `json:"resource"`
	Store    string     `json:"store"`
	From     markReport `json:"from"`
	To       markReport `json:"to"`
}

func reportMark(m fence.Mark) markReport {
	return markReport{m.Backend, m.Lock, uint64(m.Token), uint64(m.Written)}
}

// describeMark describes a mark for people.
func describeMark(m fence.Mark) string {
	if !m.Bound() {
		return "not bound to a lock: no grant was used here yet"
	}
	written := "nothing written yet"
	if m.Written > 0 {
		written = fmt.Sprintf("last write with token %d", m.Written)
	}
	return fmt.Sprintf("lock %s on %s, highest token %d, %s", printable(m.Lock), printable(m.Backend), m.Token, written)
}

func (a *App) fenceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fence COMMAND",
		Short: "Show the marks of guarded resources, and bind them to another lock",
		Long: `A guard keeps a mark with each resource: the lock and backend that it is bound to, and the
highest token seen. These commands are for operators. Writers never need them.`,
		Example: "  lockstep fence show report --guard file:///var/lib/billing",
		Args:    cobra.ArbitraryArgs,
		RunE:    subcommands,
	}
	cmd.AddCommand(a.fenceShowCommand(), a.fenceResetCommand())
	return cmd
}

// storeFlags say where the marks are stored.
type storeFlags struct {
	url, marks string
	connect    span
}

func (f *storeFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "guard", "", "`URL` of the store with the marks, such as postgres://host/app (required)")
	flags.StringVar(&f.marks, "marks", "", "prefix of the keys, or `name` of the table, if the writing program configures one")
	f.connect = span{10 * time.Second, true}
	flags.Var(&f.connect, "connect-timeout", "give up if the store does not answer within this time")
}

// withMarks calls use with the marks in the store.
func (f *storeFlags) withMarks(ctx context.Context, use func(context.Context, fence.Resetter, guard.Store) error) error {
	if f.url == "" {
		return usageError("--guard is required: give the URL of the store, such as %s", strings.Join(guard.Examples(), " or "))
	}
	store, err := guard.Parse(f.url, f.marks)
	if err != nil {
		return usageError("--guard: %w", err)
	}
	if store.Connect = f.connect.d; store.Connect <= 0 {
		return usageError("--connect-timeout: must be above 0")
	}
	ctx, cancel := context.WithTimeout(ctx, store.Connect)
	defer cancel()
	marks, err := store.Open(ctx)
	if err != nil {
		return err
	}
	defer marks.Close()
	return use(ctx, marks, store)
}

func (a *App) fenceShowCommand() *cobra.Command {
	var from storeFlags
	var out output
	cmd := &cobra.Command{
		Use:   "show RESOURCE --guard URL [flags]",
		Short: "Show the lock that a guarded resource is bound to, and the highest token seen",
		Long: `Shows the mark of a guarded resource. A resource that was never written under a grant has no mark; that is not an error.

  file:///DIRECTORY         guarded files (fence/filefence): RESOURCE is the path of the file below DIRECTORY
  dir:///DIRECTORY          a directory of marks only (filefence.Dir)
  postgres://USER@HOST/DB   the table of marks (adapter/postgres/pgfence)
  redis://HOST:PORT/DB      one server (adapter/redis/redisfence); rediss:// with TLS
  etcd://HOST:PORT,...      (adapter/etcd/etcdfence); etcds:// with TLS
  s3://BUCKET               (adapter/s3/s3fence); ?endpoint=URL for a store other than Amazon's

A URL with a password belongs in LOCKSTEP_GUARD: every user of a machine can read command lines.`,
		Example: `  lockstep fence show report --guard file:///var/lib/billing
  lockstep fence show invoices --guard postgres://127.0.0.1/app -o json | jq .token`,
		Args: exactly("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return from.withMarks(cmd.Context(), func(ctx context.Context, marks fence.Resetter, store guard.Store) error {
				m, err := marks.Mark(ctx, args[0])
				if err != nil {
					return err
				}
				if out == jsonOutput {
					return a.writeJSON(fenceReport{args[0], store.Scheme(), reportMark(m)})
				}
				_, err = fmt.Fprintf(a.Out, "%s: %s\n", printable(args[0]), describeMark(m))
				return err
			})
		},
	}
	from.register(cmd.Flags())
	out.register(cmd.Flags())
	return cmd
}

// resetFlags say which lock to bind a resource to.
type resetFlags struct {
	backend, lock string
	token, seen   uint64
	looked        bool // --seen was given
}

func (f *resetFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.backend, "to-backend", "", "`id` of the new backend, as programs pass it to their guards, such as etcd:prod (default: unchanged)")
	flags.StringVar(&f.lock, "to-lock", "", "`name` of the new lock (default: unchanged)")
	flags.Uint64Var(&f.token, "to-token", 0, "refuse tokens of the new lock below this `number`")
	flags.Uint64Var(&f.seen, "seen", 0, "the `token` shown by \"fence show\", to confirm that you looked and no writer is running (required)")
}

// to returns the mark that is to replace the present one.
func (f *resetFlags) to(present fence.Mark) fence.Mark {
	next := fence.Mark{Backend: present.Backend, Lock: present.Lock, Token: lockstep.Token(f.token)}
	if f.backend != "" {
		next.Backend = f.backend
	}
	if f.lock != "" {
		next.Lock = f.lock
	}
	return next
}

func (a *App) fenceResetCommand() *cobra.Command {
	var at storeFlags
	var to resetFlags
	var out output
	cmd := &cobra.Command{
		Use:   "reset RESOURCE --guard URL --seen TOKEN [flags]",
		Short: "Bind a guarded resource to another lock or backend",
		Long: `Binds a guarded resource to another lock, or to the same name on another backend. Use it when
you move to another cluster, when a cluster was lost and rebuilt under a new name, or when a lock
was renamed. The tokens of two locks cannot be compared, so a guard refuses the new lock until this
is done, and the old one afterwards. The data is kept.

Stop the writers first. Then run "lockstep fence show", and pass the token that it shows as --seen.
Without --seen, nothing is changed: the command only says what it would do. If a writer was active
in between, nothing is changed either. A mark cannot be lowered for the same lock: that would let an
older holder in.

For files, run it as the user of the writers, who must be able to read the mark. RESOURCE and URL
are as for "lockstep fence show".

Exit codes: 0 if the mark was changed, 1 if it is not the one seen or there is none, 64 for an
invalid command line or a missing --seen, 69 if the store cannot be reached.`,
		Example: `  lockstep fence show report --guard file:///var/lib/billing
  lockstep fence reset report --guard file:///var/lib/billing --to-backend etcd:prod --seen 253611874320397`,
		Args: exactly("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			to.looked = cmd.Flags().Changed("seen")
			if to.backend == "" && to.lock == "" {
				return usageError("give the new lock: --to-backend ID, --to-lock NAME, or both")
			}
			return at.withMarks(cmd.Context(), func(ctx context.Context, marks fence.Resetter, store guard.Store) error {
				was, is, err := resetMark(ctx, marks, args[0], to)
				if err != nil {
					return err
				}
				if out == jsonOutput {
					return a.writeJSON(resetReport{args[0], store.Scheme(), reportMark(was), reportMark(is)})
				}
				_, err = fmt.Fprintf(a.Out, "%s\n  before: %s\n  now:    %s\n", printable(args[0]), describeMark(was), describeMark(is))
				return err
			})
		},
	}
	at.register(cmd.Flags())
	to.register(cmd.Flags())
	out.register(cmd.Flags())
	return cmd
}

// resetMark reads the mark and resets it, and returns the old and the new mark. The reset fails if
// the mark in the store has changed since it was read.
func resetMark(ctx context.Context, marks fence.Resetter, resource string, to resetFlags) (was, is fence.Mark, err error) {
	if was, err = marks.Mark(ctx, resource); err != nil {
		return was, is, err
	}
	if !was.Bound() {
		return was, is, exitError{CodeBusy, fmt.Errorf("nothing to reset: %s is not bound to a lock yet; its first grant binds it", printable(resource))}
	}
	if is, err = was.Reset(was, to.to(was)); err != nil {
		return was, is, err
	}
	if !to.looked {
		return was, is, usageError("nothing changed: %s would go from %s to %s: stop its writers, then repeat with --seen %d",
			printable(resource), describeMark(was), describeMark(is), was.Token)
	}
	if lockstep.Token(to.seen) != was.Token {
		return was, is, fmt.Errorf("%w: its highest token is now %d, not %d: a writer is running, or you looked at another resource", fence.ErrMoved, was.Token, to.seen)
	}
	return was, is, marks.Reset(ctx, resource, was, is)
}
