// Command pause shows how a client that was frozen or cut off beyond its lease writes late: into a
// plain account, where it destroys what the next holder wrote, and into a guarded one, which
// refuses it.
//
// It starts the lock service and the store, so their programs must be installed; a backend that is
// there already can be named by its URL, and is then left alone. The lockstep program must be next
// to this one or on PATH. It needs no root, takes about half a minute, leaves nothing behind, and
// exits 0 only if all of this was seen.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/lockstep-dev/lockstep/examples/internal/account"
	"github.com/lockstep-dev/lockstep/examples/internal/actor"
	"github.com/lockstep-dev/lockstep/examples/internal/locks"
	"github.com/lockstep-dev/lockstep/examples/internal/stage"
)

const usage = `pause shows a client that writes too late, with and without a guard.

Two processes, A and B, change an account under one lock. A reads, looks at its lease, and is
then frozen beyond it; B is granted the lock and writes; A goes on and writes what it had
computed. Then the same with a network cut between A and the lock service, and with a leader
that dies while A is frozen. The account is kept twice: the plain one loses what B wrote, each
time, and the guarded one refuses A. A timeline shows leases, grants, writes and refusals.

The lock service and the store are started for it, so their programs must be installed; a
backend that is there already can be named by its URL, and is then left alone. It takes about
half a minute, does not need root, and cleans up after itself. It exits with 0 only if it showed all of this.

Examples:
  pause
  pause --store postgres --svg pause.svg
  pause --backend etcd

Flags:
`

const (
	codeUsage = 2
	// actorArgument is the first argument of the processes A and B.
	actorArgument = "actor"
	// backendVariable is where A and B find the URL of the backend, which may have a password.
	backendVariable = "PAUSE_BACKEND"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == actorArgument {
		os.Exit(serve(os.Args[2:]))
	}
	p, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "pause: %v\n", err)
		os.Exit(codeUsage)
	}
	os.Exit(stage.Main("pause", func(ctx context.Context) error { return run(ctx, os.Stdout, p) }))
}

func parse(args []string) (Pause, error) {
	p := Pause{Width: columns()}
	stores, backends := strings.Join(account.Kinds(), ", "), strings.Join(Backends(), ", ")
	flags := flag.NewFlagSet("pause", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the error says it
	flags.StringVar(&p.Backend, "backend", Backends()[0], fmt.Sprintf("where the locks are: `name`, one of %s, or the URL of a running backend, without TLS", backends))
	flags.StringVar(&p.Store, "store", account.Kinds()[0], fmt.Sprintf("where the accounts are: `name`, one of %s", stores))
	flags.StringVar(&p.SVG, "svg", "", "write the timelines as a picture to this `file`")
	flags.Usage = func() {}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Print(usage)
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return p, err
	} else if err != nil {
		return p, err
	}
	if flags.NArg() > 0 {
		return p, fmt.Errorf("unknown argument %q: see pause --help", flags.Arg(0))
	}
	if !slices.Contains(account.Kinds(), p.Store) {
		return p, fmt.Errorf("--store: want one of %s", stores)
	}
	if _, err := locks.Scheme(p.Backend); err != nil && !slices.Contains(Backends(), p.Backend) {
		return p, fmt.Errorf("--backend: want one of %s, or a URL: %w", backends, err)
	}
	return p, nil
}

// columns is how wide a timeline may be: as the terminal, within limits, or what fits into a page.
func columns() int {
	const page, most = 100, 132
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
		return min(width, most)
	}
	return page
}

// serve is what the processes A and B run.
func serve(args []string) int {
	cfg := actor.Config{Backend: os.Getenv(backendVariable)}
	flags := flag.NewFlagSet("pause "+actorArgument, flag.ExitOnError)
	flags.StringVar(&cfg.Store, "store", "", "where the accounts are, as a `URL`")
	flags.StringVar(&cfg.Name, "name", "", "`name` of the lock and of the account")
	flags.StringVar(&cfg.Cable, "cable", "", "`host:port` of the proxy to the backend")
	flags.DurationVar(&cfg.TTL, "ttl", 0, "lease of the lock")
	_ = flags.Parse(args) // it exits on an error
	if err := actor.Serve(context.Background(), cfg, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
