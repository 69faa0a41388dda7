// Command redlock shows on five real Redis servers what breaks the exclusion of Redlock, and what
// then keeps the data whole. Each step starts servers of its own: a clock jumps, a server restarts
// without what it had stored, a holder pauses. Each time two clients act under one lock, the later
// one has the larger token, and a guarded file refuses the older one.
//
// It needs Linux, redis-server and gcc (Debian: apt-get install redis-server gcc libc6-dev), and
// the lockstep program, next to this one or on PATH. It takes about half a minute, leaves nothing
// behind, and exits 0 only if all of this was seen.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"

	"github.com/lockstep-dev/lockstep/examples/internal/stage"
)

const usage = `redlock shows what breaks Redlock, and what keeps the data whole.

It starts five Redis servers for each step and shows a clock jump, a restart without
persistence and a pause of the holder: each time two clients act under one lock, the later
one has the larger token, and a guarded file refuses the older one. It needs redis-server and
gcc (Debian: apt-get install redis-server gcc libc6-dev) and the lockstep program, takes about
half a minute and cleans up after itself.

Usage:
  redlock
`

func main() {
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage) }
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if runtime.GOOS != "linux" { // a library is preloaded into servers, and /proc is read
		fmt.Fprintln(os.Stderr, "redlock: it needs Linux")
		os.Exit(1)
	}
	os.Exit(stage.Main("redlock", func(ctx context.Context) error { return stage.Run(ctx, os.Stdout, steps) }))
}
