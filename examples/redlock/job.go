package main

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

	"github.com/lockstep-dev/lockstep/examples/internal/stage"
)

// frozenTTL is short: the step waits for its end.
const frozenTTL = 2 * time.Second

// lateWriter is a job that was told to go on when it last looked, and writes when it wakes.
const lateWriter = `echo $LOCKSTEP_TOKEN > A.token; echo $$ > A.pid; while [ ! -e A.go ]; do sleep 0.02; done; echo A > plain`

// A job is one "lockstep run" with its process.
type job struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// startWriter starts A's job and waits until it has the lock.
func startWriter(ctx context.Context, s *stage.Stage, backend string) (*job, error) {
	cmd, err := s.Lockstep(ctx, backend, "run", "--ttl", frozenTTL.String(), "--purpose", "A", s.Name("frozen"), "--", "sh", "-c", lateWriter)
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	j := &job{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its exit code is of no interest
		close(j.done)
	}()
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		if _, err := os.Stat(s.Path("A.pid")); err == nil {
			return j, nil
		}
		stage.Sleep(ctx, 20*time.Millisecond)
	}
	j.kill()
	return nil, errors.New("the lock was never granted to A")
}

// freeze stops run, its watcher and the job, and returns their process ids.
func (j *job) freeze() ([]int, error) {
	pids := append([]int{j.cmd.Process.Pid}, descendants(j.cmd.Process.Pid)...)
	if len(pids) < 2 {
		return nil, errors.New("found no processes of the job")
	}
	for _, pid := range pids {
		if err := stage.Suspend(pid); err != nil && !errors.Is(err, syscall.ESRCH) {
			return nil, fmt.Errorf("freeze process %d: %w", pid, err)
		}
	}
	return pids, nil
}

// kill ends run; its watcher then ends the job.
func (j *job) kill() {
	_ = j.cmd.Process.Kill() // it may have ended by itself
	<-j.done
}

func numbers(s *stage.Stage, file string) ([]uint64, error) {
	content, err := os.ReadFile(s.Path(file))
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

// descendants lists the children of a process, theirs, and so on.
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
			continue // it ended meanwhile
		}
		child, parent, ok := parseStat(string(content))
		if ok && parent == pid {
			found = append(found, child)
		}
	}
	return found
}

// parseStat reads "pid (name) state parent ..."; the name may hold anything.
func parseStat(stat string) (pid, parent int, ok bool) {
	open, shut := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || shut < open {
		return 0, 0, false
	}
	behind := strings.Fields(stat[shut+1:])
	if len(behind) < 2 {
		return 0, 0, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(stat[:open]))
	if err != nil {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(behind[1])
	return pid, parent, err == nil
}
