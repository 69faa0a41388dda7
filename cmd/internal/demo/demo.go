// Package demo shows the lock service at work on real processes: five servers, jobs
// under "lockstep run", a killed leader, a frozen holder, a lost quorum. Each step
// says what it is about to show, shows it, and checks it; the demo succeeds only
// when every step held.
package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// A Config says where the demo runs.
type Config struct {
	// Binary is the lockstep program, which the demo runs as servers and clients.
	Binary string
	// Out receives the narration.
	Out io.Writer
}

// Run shows everything in about half a minute. It returns an error that names the
// first step that did not hold. It stops what it started and removes its files.
func Run(ctx context.Context, cfg Config) error {
	dir, err := os.MkdirTemp("", "lockstep-demo-")
	if err != nil {
		return fmt.Errorf("demo: make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()

	s := &stage{binary: cfg.Binary, dir: dir, out: cfg.Out, begin: time.Now()}
	defer s.close()
	for i, step := range steps {
		s.title(i+1, step.title)
		if err := step.show(ctx, s); err != nil {
			s.say("DID NOT HOLD: %v", err)
			return fmt.Errorf("demo: step %d, %s: %w", i+1, step.title, err)
		}
	}
	s.say("")
	s.say("All %d steps held, in %.0f s.", len(steps), time.Since(s.begin).Seconds())
	return nil
}

// steps are shown in this order; later ones use the cluster that the first started.
var steps = []struct {
	title string
	show  func(context.Context, *stage) error
}{
	{"Five nodes agree on a leader", startCluster},
	{"Competing jobs, and the leader is killed in the middle", competingJobs},
	{"Waiters are served in the order they came", orderlyQueue},
	{"A holder freezes beyond its lease", frozenHolder},
	{"What happened is on record", history},
	{"Three of five nodes are gone: nothing is granted", lostQuorum},
}

// A stage is what the steps share. It is used by one goroutine.
type stage struct {
	binary  string
	dir     string
	out     io.Writer
	begin   time.Time
	cluster cluster
}

func (s *stage) title(number int, text string) {
	fmt.Fprintf(s.out, "\n[%4.1fs] %d. %s\n", time.Since(s.begin).Seconds(), number, text)
}

func (s *stage) say(format string, args ...any) {
	fmt.Fprintf(s.out, "        "+format+"\n", args...)
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

func (s *stage) close() { s.cluster.killAll() }
