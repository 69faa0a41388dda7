//go:build unix

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait of these tests. Normally they need far less.
const patience = 60 * time.Second

// A world is a working directory and a control directory for programs.
type world struct {
	t       *testing.T
	dir     string
	control string
	env     []string
}

// newWorld returns the world of a test, which runs in parallel with others from here on.
func newWorld(t *testing.T) *world {
	t.Parallel()
	return makeWorld(t)
}

func makeWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), control: t.TempDir()}
	w.env = append(cleanEnvironment(), asProgram+"=1", controlDir+"="+w.control)
	return w
}

func cleanEnvironment() []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "LOCKSTEP_") {
			env = append(env, entry)
		}
	}
	return env
}

// A process is a running lockstep.
type process struct {
	*exec.Cmd
	w        *world
	out, err screen
	done     chan struct{}
}

// A screen is what a process has printed so far.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// start starts lockstep in its own process group, and kills what is left of it at the end of the
// test.
func (w *world) start(args ...string) *process {
	w.t.Helper()
	return w.startWith(nil, args...)
}

func (w *world) startWith(stdin *os.File, args ...string) *process {
	w.t.Helper()
	p := &process{Cmd: exec.Command("/proc/self/exe", args...), w: w, done: make(chan struct{})}
	p.Dir, p.Env, p.Stdout, p.Stderr = w.dir, w.env, &p.out, &p.err
	if stdin != nil {
		p.Stdin = stdin
	}
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.WaitDelay = 20 * time.Second // a descendant may keep the output open
	if err := p.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() { defer close(p.done); p.Wait() }()
	w.t.Cleanup(func() {
		p.Process.Signal(syscall.SIGCONT)
		p.Process.Kill()
		<-p.done
		if w.t.Failed() {
			w.t.Logf("lockstep %q printed: %s%s", args, p.out.String(), p.err.String())
		}
	})
	return p
}

// code waits for the process to end and returns its exit code.
func (p *process) code() int {
	p.w.t.Helper()
	select {
	case <-p.done:
		return p.ProcessState.ExitCode()
	case <-time.After(patience):
		p.w.t.Fatalf("lockstep has not ended after %v; stderr: %s", patience, p.err.String())
		return 0
	}
}

// stopsAndGoesOn sends what ctrl-Z sends, waits until the process is stopped, and continues it.
func (p *process) stopsAndGoesOn() {
	p.w.t.Helper()
	p.Process.Signal(syscall.SIGTSTP)
	p.w.eventually("it is stopped", func() bool {
		state, err := processState(p.Process.Pid)
		return err == nil && state == 'T'
	})
	p.Process.Signal(syscall.SIGCONT)
}

// run runs lockstep to its end and checks its exit code.
func (w *world) run(want int, args ...string) (stdout, stderr string) {
	w.t.Helper()
	p := w.start(args...)
	if got := p.code(); got != want {
		w.t.Errorf("lockstep %q: exit code %d, want %d; stderr: %s", args, got, want, p.err.String())
	}
	return p.out.String(), p.err.String()
}

// set creates a file that controls the lock.
func (w *world) set(file string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.control, file), nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) unset(file string) { os.Remove(filepath.Join(w.control, file)) }

func (w *world) has(file string) bool {
	_, err := os.Stat(filepath.Join(w.control, file))
	return err == nil
}

// read waits until the file exists and ends with a newline, and returns its words.
func (w *world) read(file string) []string {
	w.t.Helper()
	var text []byte
	w.eventually(file, func() bool {
		text, _ = os.ReadFile(filepath.Join(w.dir, file))
		return bytes.HasSuffix(text, []byte("\n"))
	})
	return strings.Fields(string(text))
}

// pids reads process ids from a file.
func (w *world) pids(file string) []int {
	w.t.Helper()
	var pids []int
	for _, word := range w.read(file) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			w.t.Fatal(err)
		}
		pids = append(pids, pid)
		w.t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
	}
	return pids
}

func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// gone waits until none of the processes is running.
func (w *world) gone(pids ...int) {
	w.t.Helper()
	for _, pid := range pids {
		w.eventually(fmt.Sprintf("process %d is gone", pid), func() bool { return !runs(pid) })
	}
}

// runs reports whether a process exists and is not a zombie.
func runs(pid int) bool {
	state, err := processState(pid)
	return err == nil && state != 'Z' && state != 'X'
}

// processState returns the state letter in /proc/PID/stat.
func processState(pid int) (byte, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(text), ") ")
	if !found || rest == "" {
		return 0, errors.New("no state")
	}
	return rest[0], nil
}

// children returns the direct children of a process.
func children(pid int) []int {
	return processes(func(stat []string) bool { return stat[1] == strconv.Itoa(pid) })
}

// processes returns those for which is returns true, given the fields of /proc/PID/stat after the
// name: state, parent, group, session and so on.
func processes(is func(stat []string) bool) []int {
	var found []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 3 && is(fields) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
			found = append(found, pid)
		}
	}
	return found
}
