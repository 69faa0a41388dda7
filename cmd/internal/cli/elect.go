package cli

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/cmd/internal/supervise"
	"github.com/lockstep-dev/lockstep/election"
)

// maxDrain bounds --drain.
const maxDrain = 24 * time.Hour

// electFlags are the flags of elect.
type electFlags struct {
	claimFlags
	commandFlags
	end      endWithFlag
	drain    span
	identity string
	observe  bool
	out      output
}

// An electPlan is what elect was asked to do, after validation.
type electPlan struct {
	claimPlan
	commandPlan
}

const electLong = `Campaigns for leadership of NAME, and runs the command while it is the leader. There is only
one leader at a time. When leadership is lost, the command and all its descendants are stopped
before another candidate can lead, just as with "lockstep run"; then this candidate campaigns
again, and restarts the command when it is elected. The command must therefore be restartable.

If the command ends by itself, elect resigns and exits with the command's exit code, 0 or not.
On INT or TERM elect resigns: the command of a leader gets TERM, and KILL after --drain, while
the lease is renewed. The lock is released as soon as the command has ended, so the next leader
need not wait for the lease. Other signals are passed on to the command. If the service cannot
be reached for --connect-timeout at the start, elect fails. Once it has reached the service, it
reports errors and keeps retrying.

The command finds LOCKSTEP_LOCK, LOCKSTEP_TOKEN and LOCKSTEP_SESSION in its environment. The
token increases from term to term: send it with every write, and let the storage refuse older
tokens.

--observe does not take part in the election. It prints the current leader, or that there is
none, and a line for each change, until INT.

Exit codes: the exit code of the command, 128 + n if signal n ended it or the wait, 143 if
--end-with ended the wait, 64 for an invalid command line or, at the start, endpoints of two
clusters, 69 if the service could never be reached, 121 if leadership was lost while elect was
ending, 126 or 127 if the command cannot be executed; with --observe 69 whenever the service
cannot be reached.`

func (a *App) electCommand() *cobra.Command {
	var f electFlags
	cmd := &cobra.Command{
		Use:   "elect NAME [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding leadership",
		Long:  electLong,
		Example: `  lockstep elect billing/scheduler -- ./scheduler
  lockstep elect --identity host-1 --ttl 15 billing/scheduler -- ./scheduler
  lockstep elect --observe billing/scheduler -o json | jq -r .leader`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.observe {
				return exactly("NAME")(cmd, args)
			}
			return f.checkArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.observe {
				return a.observe(cmd.Context(), &f, args[0])
			}
			plan, err := f.plan(a, cmd, args)
			if err != nil {
				return err
			}
			return a.elect(cmd.Context(), plan)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *electFlags) register(flags *pflag.FlagSet) {
	f.registerLease(flags, lockstep.DefaultTTL)
	f.commandFlags.register(flags)
	f.end.register(flags)
	flags.Var(&f.drain, "drain", "time between TERM and KILL after INT or TERM to elect; the lease is renewed meanwhile (default: --kill-after)")
	flags.StringVar(&f.identity, "identity", "", "`name` of this candidate, visible to others (default: host name and process id)")
	flags.BoolVar(&f.observe, "observe", false, "do not take part: show the leader")
	f.out.register(flags)
	flags.Lookup("output").Usage += ", with --observe"
}

// plan validates the flags, on their own and in combination.
func (f *electFlags) plan(a *App, cmd *cobra.Command, args []string) (plan electPlan, err error) {
	if plan.claimPlan, err = f.claimFlags.plan(a, "elect", args[0], nil); err != nil {
		return electPlan{}, err
	}
	if plan.endWith, err = f.end.plan(a.Parent); err != nil {
		return electPlan{}, err
	}
	if plan.commandPlan, err = f.commandFlags.plan(cmd, args[1:], f.ttl.d); err != nil {
		return electPlan{}, err
	}
	if f.drain.d > maxDrain {
		return electPlan{}, usageError("--drain: %v: must be at most %v", f.drain.d, maxDrain)
	}
	plan.drain = f.drain.d
	labels, err := f.candidate()
	if err != nil {
		return electPlan{}, err
	}
	plan.labels = describe(labels, f.shown(plan.commandPlan))
	plan.options = f.options(plan.labels)
	return plan, nil
}

// candidate returns the labels that mark a claim as a candidate's, the same as those of package
// election.
func (f *electFlags) candidate() (map[string]string, error) {
	if len(f.identity) > election.MaxIdentityBytes {
		return nil, usageError("--identity: is %d bytes long, the limit is %d", len(f.identity), election.MaxIdentityBytes)
	}
	labels := f.labels()
	if f.identity == "" {
		own := describe(map[string]string{}, nil)
		f.identity = own["host"] + "_" + own["pid"]
	}
	labels[election.IdentityKey] = f.identity
	return labels, lockstep.CheckMetadata(labels)
}

// elect leads again and again until the command ends by itself or a signal ends the candidacy. The
// error carries the exit code; nil means code 0.
func (a *App) elect(ctx context.Context, plan electPlan) error {
	if err := a.adopt(); err != nil {
		return err
	}
	if err := a.waitsForItself(plan.claimPlan); err != nil {
		return err
	}
	metadata := maps.Clone(plan.labels)
	delete(metadata, election.IdentityKey)
	candidate := supervise.Candidate{
		Claim: a.claim(plan.claimPlan), Connect: plan.target.Connect,
		Identity: plan.labels[election.IdentityKey], Metadata: metadata,
	}
	code, err := supervise.Elect(ctx, candidate, plan.supervised(plan.claimPlan))
	return ended(plan.claimPlan, code, err)
}

// A leaderReport is one line of "elect --observe" as JSON.
type leaderReport struct {
	Lock   string   `json:"lock"`
	Leader string   `json:"leader"` // empty: nobody
	Token  uint64   `json:"token"`  // 0 if nobody leads
	Since  *instant `json:"since"`  // when it was elected; null if nobody leads
}

func (a *App) observe(ctx context.Context, f *electFlags, name string) error {
	plan, err := f.claimFlags.plan(a, "elect", name, nil)
	if err != nil {
		return err
	}
	locker, err := a.OpenLocker(plan.target)
	if err != nil {
		return err
	}
	for leader, err := range election.Observe(ctx, locker, name) {
		if err == nil {
			err = a.printLeader(name, leader, f.out)
		}
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func (a *App) printLeader(name string, l election.Leader, out output) error {
	if out != jsonOutput && l.Nobody() {
		_, err := fmt.Fprintf(a.Out, "%s: no leader\n", printable(name))
		return err
	}
	if out != jsonOutput {
		_, err := fmt.Fprintf(a.Out, "%s: %s leads with token %d since %s\n",
			printable(name), printable(l.Identity), l.Token, instant{l.Since})
		return err
	}
	report := leaderReport{Lock: name, Leader: l.Identity, Token: uint64(l.Token)}
	if !l.Nobody() {
		report.Since = &instant{l.Since}
	}
	return a.writeJSONLine(report)
}
