//go:build linux

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-dev/lockstep/lease"
)

const frozenTTL = 2 * time.Second

// writer is the job of both holders: it announces itself, then appends its token to the store for
// as long as it lives.
const writer = `echo $LOCKSTEP_TOKEN > $0.token; echo $$ > $0.pid; while :; do echo $LOCKSTEP_TOKEN >> store; sleep 0.05; done`

func frozenHolder(ctx context.Context, s *stage) error {
	s.say("A takes the lock with a lease of %v and writes to a store. B waits.", frozenTTL)
	a, err := s.startWriter(ctx, "A", "-c", writer, "A")
	if err != nil {
		return err
	}
	defer a.kill()
	b, err := s.startWaiter(ctx)
	if err != nil {
		return err
	}
	defer b.kill()

	frozen, err := a.freeze(s)
	if err != nil {
		return err
	}
	s.say("SIGSTOP to all processes of A: run, its watcher and its job (%d processes). A still believes that it holds the lock.", len(frozen))
	if err := b.waitToken(ctx, s, "B"); err != nil {
		return err
	}
	return s.wakeLate(ctx, a, frozen)
}

// wakeLate wakes A after B has been granted the lock, and checks what happens to A.
func (s *stage) wakeLate(ctx context.Context, a *job, frozen []int) error {
	tokens := map[string]uint64{}
	for _, who := range []string{"A", "B"} {
		list, err := s.numbers(who + ".token")
		if err != nil || len(list) != 1 {
			return fmt.Errorf("token of %s: %v %w", who, list, err)
		}
		tokens[who] = list[0]
	}
	s.say("A's lease expired; B was granted the lock. Tokens: A %d, B %d.", tokens["A"], tokens["B"])
	if tokens["B"] <= tokens["A"] {
		return fmt.Errorf("the token of B, %d, is not larger than that of A, %d", tokens["B"], tokens["A"])
	}
	if err := s.showOutput(ctx, "show", s.name("frozen")); err != nil {
		return err
	}
	for _, pid := range frozen {
		_ = syscall.Kill(pid, syscall.SIGCONT) // some may have ended already
	}
	code := a.exitCode()
	s.say("SIGCONT: A's watcher sees that the deadline has passed and kills the job; run exits with %d.", code)
	if code != 121 {
		return fmt.Errorf("the run of A exited with %d, want 121: lock lost", code)
	}
	return s.checkStore(tokens["A"], tokens["B"])
}

// checkStore replays the writes against a store that rejects tokens older than the newest it has
// seen.
func (s *stage) checkStore(a, b uint64) error {
	writes, err := s.numbers("store")
	if err != nil {
		return err
	}
	var newest uint64
	late := 0
	for _, token := range writes {
		if token < newest {
			late++
		}
		newest = max(newest, token)
	}
	if newest != b {
		return fmt.Errorf("the newest token in the store is %d, want B's %d", newest, b)
	}
	s.say("%d writes; %d came from A after B's first. A job can wake between its check and its write, and no", len(writes), late)
	s.say("lock can prevent that. A store that keeps the newest token, %d, refuses A's %d. The lock is advisory; the token makes it safe.", b, a)
	return nil
}

// A job is one "lockstep run" and its process.
type job struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func (s *stage) startJob(ctx context.Context, args ...string) (*job, error) {
	cmd := s.lockstep(ctx, args...)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	j := &job{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // callers read its exit code where it matters
		close(j.done)
	}()
	return j, nil
}

func (s *stage) startWriter(ctx context.Context, who string, script ...string) (*job, error) {
	args := append([]string{"run", "--ttl", frozenTTL.String(), "--purpose", who, s.name("frozen"), "--", "sh"}, script...)
	j, err := s.startJob(ctx, args...)
	if err != nil {
		return nil, err
	}
	if err := j.waitToken(ctx, s, who); err != nil {
		j.kill()
		return nil, err
	}
	return j, nil
}

func (s *stage) startWaiter(ctx context.Context) (*job, error) {
	j, err := s.startJob(ctx, "run", "--ttl", frozenTTL.String(), "--purpose", "B", s.name("frozen"), "--", "sh", "-c", writer, "B")
	if err != nil {
		return nil, err
	}
	return j, s.waitClaims(ctx, s.name("frozen"), 2)
}

// waitToken waits until the job is running. who names it in the error.
func (j *job) waitToken(ctx context.Context, s *stage, who string) error {
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		if _, err := os.Stat(s.path(who + ".pid")); err == nil {
			return nil
		}
		lease.Sleep(ctx, 20*time.Millisecond)
	}
	return fmt.Errorf("%s was never granted the lock", who)
}

// freeze stops run, its watcher and the job, and returns their process ids.
func (j *job) freeze(s *stage) ([]int, error) {
	pids := append([]int{j.cmd.Process.Pid}, descendants(j.cmd.Process.Pid)...)
	if len(pids) < 2 {
		return nil, errors.New("found no processes of the job")
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
			return nil, fmt.Errorf("freeze process %d: %w", pid, err)
		}
	}
	return pids, nil
}

func (j *job) exitCode() int {
	<-j.done
	return j.cmd.ProcessState.ExitCode()
}

// kill kills run; its watcher then kills the job.
func (j *job) kill() {
	_ = j.cmd.Process.Kill() // it may have ended already
	<-j.done
}

// descendants lists the descendants of a process.
func descendants(pid int) []int {
	var all []int
	for _, child := range children(pid) {
		all = append(all, child)
		all = append(all, descendants(child)...)
	}
	return all
}

func children(pid int) []int {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	var found []int
	for _, stat := range stats {
		content, err := os.ReadFile(stat)
		if err != nil {
			continue // the process has ended
		}
		child, parent, ok := parseStat(string(content))
		if ok && parent == pid {
			found = append(found, child)
		}
	}
	return found
}

// parseStat parses "pid (name) state parent ..."; the name may contain anything.
func parseStat(stat string) (pid, parent int, ok bool) {
	open, shut := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || shut < open {
		return 0, 0, false
	}
	fields := strings.Fields(stat[shut+1:])
	if len(fields) < 2 {
		return 0, 0, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(stat[:open]))
	if err != nil {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(fields[1])
	return pid, parent, err == nil
}
