package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep/lease"
)

func startCluster(ctx context.Context, s *stage) error {
	if err := errors.Join(s.cluster.claimAddresses(), s.writeSecret()); err != nil {
		return err
	}
	for i := range s.cluster.nodes {
		if err := s.startNode(i); err != nil {
			return err
		}
	}
	s.say("Five processes, each with its own data directory: %s", s.cluster.endpoints())
	if _, err := s.leader(ctx, ""); err != nil {
		return err
	}
	if err := s.waitHealthy(ctx); err != nil {
		return err
	}
	return s.showOutput(ctx, "status")
}

func (s *stage) waitHealthy(ctx context.Context) error {
	deadline := time.Now().Add(15 * time.Second)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		if st, err := s.status(ctx); err == nil && healthy(st) == nodeCount {
			return nil
		}
		lease.Sleep(ctx, 100*time.Millisecond)
	}
	return errors.New("the leader does not hear from all nodes")
}

func healthy(st status) int {
	n := 0
	for _, m := range st.Members {
		if m.Health == "ok" {
			n++
		}
	}
	return n
}

// showOutput runs a read-only command and shows its output.
func (s *stage) showOutput(ctx context.Context, args ...string) error {
	out, err := s.output(ctx, args...)
	if err != nil {
		return err
	}
	s.say("$ lockstep %s", strings.Join(args, " "))
	for line := range strings.Lines(string(out)) {
		s.say("  %s", strings.TrimRight(line, "\n"))
	}
	return nil
}

const (
	shells       = 8
	runsPerShell = 8
)

func competingJobs(ctx context.Context, s *stage) error {
	if err := s.makeCounter(); err != nil {
		return err
	}
	leader, err := s.leader(ctx, "")
	if err != nil {
		return err
	}
	old := s.cluster.nodes[leader].name
	failures := s.runJobs(ctx, func() {
		s.cluster.kill(leader)
		s.say("SIGKILL to %s, the leader, after %d runs.", old, s.lines("tokens"))
	})
	next, err := s.leader(ctx, old)
	if err != nil {
		return err
	}
	s.say("%s is the new leader. The jobs in the queue kept their places, and the holder kept its lock.", s.cluster.nodes[next].name)
	if err := s.checkCounter(failures); err != nil {
		return err
	}
	return s.startNode(leader)
}

func undisturbedJobs(ctx context.Context, s *stage) error {
	if err := s.makeCounter(); err != nil {
		return err
	}
	return s.checkCounter(s.runJobs(ctx, func() {}))
}

func (s *stage) makeCounter() error {
	s.say("%d shells increment a counter in a file, %d times each: read, add, write. Without a lock, some increments would be lost.", shells, runsPerShell)
	return os.WriteFile(s.path("counter"), []byte("0\n"), 0o600)
}

const addOne = `n=$(cat counter); echo $((n+1)) > counter; echo $LOCKSTEP_TOKEN >> tokens`

// runJobs runs all jobs and calls disturb once in the middle.
func (s *stage) runJobs(ctx context.Context, disturb func()) (failures []error) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for range shells {
		group.Go(func() {
			for range runsPerShell {
				out, err := s.lockstep(ctx, "run", s.name("counter"), "--", "sh", "-c", addOne).CombinedOutput()
				if err != nil {
					mu.Lock()
					failures = append(failures, fmt.Errorf("%w: %s", err, bytes.TrimSpace(out)))
					mu.Unlock()
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	for s.lines("tokens") < shells*runsPerShell/3 && !closed(done) {
		lease.Sleep(ctx, 5*time.Millisecond)
	}
	disturb()
	<-done
	return failures
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func (s *stage) lines(file string) int {
	content, err := os.ReadFile(s.path(file))
	if err != nil {
		return 0
	}
	return bytes.Count(content, []byte("\n"))
}

func (s *stage) checkCounter(failures []error) error {
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("%d of %d runs failed: %w", len(failures), shells*runsPerShell, err)
	}
	content, err := os.ReadFile(s.path("counter"))
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(string(content)); got != strconv.Itoa(shells*runsPerShell) {
		return fmt.Errorf("the counter is %s, want %d", got, shells*runsPerShell)
	}
	tokens, err := s.numbers("tokens")
	if err != nil {
		return err
	}
	for i := 1; i < len(tokens); i++ {
		if tokens[i] <= tokens[i-1] {
			return fmt.Errorf("token %d was written after token %d", tokens[i], tokens[i-1])
		}
	}
	s.say("The counter is exactly %d; %d tokens, each larger than the one before: %d ... %d",
		shells*runsPerShell, len(tokens), tokens[0], tokens[len(tokens)-1])
	return nil
}

func (s *stage) numbers(file string) ([]uint64, error) {
	content, err := os.ReadFile(s.path(file))
	if err != nil {
		return nil, err
	}
	var list []uint64
	for _, word := range strings.Fields(string(content)) {
		n, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		list = append(list, n)
	}
	return list, nil
}

func orderlyQueue(ctx context.Context, s *stage) error {
	var jobs []*exec.Cmd
	for i, name := range []string{"first", "second", "third", "fourth"} {
		script := "echo " + name + " >> order"
		if i == 0 {
			script = "while [ ! -e go ]; do sleep 0.05; done; " + script
		}
		job := s.lockstep(ctx, "run", "--purpose", name, s.name("queue"), "--", "sh", "-c", script)
		if err := job.Start(); err != nil {
			return err
		}
		jobs = append(jobs, job)
		if err := s.waitClaims(ctx, s.name("queue"), i+1); err != nil {
			return err
		}
	}
	if err := s.showOutput(ctx, "show", s.name("queue")); err != nil {
		return err
	}
	if err := os.WriteFile(s.path("go"), nil, 0o600); err != nil {
		return err
	}
	for _, job := range jobs {
		if err := job.Wait(); err != nil {
			return fmt.Errorf("a job in the queue: %w", err)
		}
	}
	content, err := os.ReadFile(s.path("order"))
	if err != nil {
		return err
	}
	if got := strings.Join(strings.Fields(string(content)), " "); got != "first second third fourth" {
		return fmt.Errorf("the jobs ran in the order %q", got)
	}
	s.say("The first job released the lock; all four ran in order: first, second, third, fourth.")
	return nil
}

// A lockState is the part of "lockstep show -o json" that is used here.
type lockState struct {
	Holders []struct {
		Token uint64 `json:"token"`
	} `json:"holders"`
	Waiters []struct{} `json:"waiters"`
}

func (s *stage) lockState(ctx context.Context, name string) (lockState, error) {
	out, err := s.output(ctx, "show", name, "-o", "json")
	if err != nil {
		return lockState{}, err
	}
	var st lockState
	if err := json.Unmarshal(out, &st); err != nil {
		return lockState{}, fmt.Errorf("read the state of %s: %w", name, err)
	}
	return st, nil
}

// waitClaims waits until the lock has count holders and waiters together. Most backends do not show
// waiters: with another backend it waits a second instead, which is long enough for a job to
// request the lock.
func (s *stage) waitClaims(ctx context.Context, name string, count int) error {
	if s.backend != nil {
		lease.Sleep(ctx, time.Second)
		return nil
	}
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		if st, err := s.lockState(ctx, name); err == nil && len(st.Holders)+len(st.Waiters) >= count {
			return nil
		}
		lease.Sleep(ctx, 20*time.Millisecond)
	}
	return fmt.Errorf("%s never had %d claims", name, count)
}

func lostQuorum(ctx context.Context, s *stage) error {
	leader, err := s.leader(ctx, "")
	if err != nil {
		return err
	}
	down := []int{leader, (leader + 1) % nodeCount, (leader + 2) % nodeCount}
	for _, i := range down {
		s.cluster.kill(i)
	}
	s.say("SIGKILL to %s, %s and %s. Two nodes are left: no majority.",
		s.cluster.nodes[down[0]].name, s.cluster.nodes[down[1]].name, s.cluster.nodes[down[2]].name)
	err = s.lockstep(ctx, "run", "-w", "2", s.name("minority"), "--", "touch", s.path("granted-without-quorum")).Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("run without a quorum: %v, want an exit code", err)
	}
	if _, err := os.Stat(s.path("granted-without-quorum")); err == nil {
		return errors.New("a lock was granted without a quorum")
	}
	s.say("lockstep run exits with %d, and the job never ran: unavailable rather than unsafe.", exit.ExitCode())
	for _, i := range down {
		if err := s.startNode(i); err != nil {
			return err
		}
	}
	out, err := s.output(ctx, "run", s.name("minority"), "--", "sh", "-c", "echo $LOCKSTEP_TOKEN")
	if err != nil {
		return err
	}
	s.say("The three nodes are back with their data, and the next grant has token %s.", bytes.TrimSpace(out))
	return nil
}
