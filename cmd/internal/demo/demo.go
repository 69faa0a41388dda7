// Package demo shows the lock service at work on real processes: five servers, jobs under "lockstep
// run", a killed leader, a frozen holder, a lost quorum. Each step says what it is about to show,
// shows it, and checks it; the demo succeeds only if every check passes.
package demo

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A Config configures the demo.
type Config struct {
	// Binary is the lockstep program. The demo runs it as servers and clients.
	Binary string
	// Out receives the narration.
	Out io.Writer
}

// Run shows everything in about half a minute. It returns an error that names the first step that
// failed. It stops what it started and removes its files.
func Run(ctx context.Context, cfg Config) error { return run(ctx, cfg, nil, serviceSteps) }

// RunOn shows what a running backend does for the jobs of its clients, in less than half a minute.
// It uses lock names of its own, and breaks nothing.
func RunOn(ctx context.Context, cfg Config, url string) error {
	return run(ctx, cfg, []string{"LOCKSTEP_BACKEND=" + url}, clientSteps)
}

func run(ctx context.Context, cfg Config, environment []string, steps []step) error {
	dir, err := os.MkdirTemp("", "lockstep-demo-")
	if err != nil {
		return fmt.Errorf("demo: create a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	asked := ctx
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()

	s := &stage{binary: cfg.Binary, dir: dir, out: cfg.Out, begin: time.Now(), backend: environment, space: "demo-" + strings.ToLower(rand.Text()[:6])}
	defer s.close()
	for i, step := range steps {
		s.title(i+1, step.title)
		if err := step.show(ctx, s); err != nil {
			if asked.Err() != nil {
				s.say("Interrupted.")
				return context.Cause(asked)
			}
			s.say("FAILED: %v", err)
			return fmt.Errorf("demo: step %d, %s: %w", i+1, step.title, err)
		}
	}
	s.say("")
	s.say("All %d steps passed, in %.0f s.", len(steps), time.Since(s.begin).Seconds())
	return nil
}

// A step is one thing to show.
type step struct {
	title string
	show  func(context.Context, *stage) error
}

// serviceSteps are shown in this order; later steps use the cluster that the first one started.
var serviceSteps = []step{
	{"Five nodes agree on a leader", startCluster},
	{"Competing jobs, and the leader is killed in the middle", competingJobs},
	{"Waiters are served in order of arrival", orderlyQueue},
	{"A holder freezes beyond its lease", frozenHolder},
	{"The history shows what happened", history},
	{"Three of five nodes are gone: nothing is granted", lostQuorum},
}

// clientSteps need only locks from the backend.
var clientSteps = []step{
	{"Competing jobs", undisturbedJobs},
	{"A holder freezes beyond its lease", frozenHolder},
}

// A stage is what the steps share. It is used by one goroutine.
type stage struct {
	binary  string
	dir     string
	out     io.Writer
	begin   time.Time
	space   string // prefix of the lock names of this demo
	cluster cluster
	// backend holds the environment variables that select the backend; nil: the cluster.
	backend []string
}

// name returns the name of a lock of this demo.
func (s *stage) name(last string) string { return s.space + "/" + last }

func (s *stage) title(number int, text string) {
	fmt.Fprintf(s.out, "\n[%4.1fs] %d. %s\n", time.Since(s.begin).Seconds(), number, text)
}

func (s *stage) say(format string, args ...any) {
	fmt.Fprintf(s.out, "        "+format+"\n", args...)
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

func (s *stage) close() {
	s.cluster.killAll()
}
