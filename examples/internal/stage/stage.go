// Package stage is what the examples run on: a folder of their own, a narration, and steps each of
// which must hold. It also runs the lockstep program.
package stage

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// timeLimit bounds an example: one that hangs shows nothing.
const timeLimit = 2 * time.Minute

// A Step is one thing that is shown.
type Step struct {
	Title string
	Show  func(context.Context, *Stage) error
}

// A Stage is what the steps of an example share. It is used by one goroutine.
type Stage struct {
	// Dir is the folder of the example, which Run removes.
	Dir string

	out     io.Writer
	begin   time.Time
	space   string   // what the names of this example's locks begin with
	closers []func() // of what was started
}

// New returns a stage without a folder that writes its narration to out.
func New(out io.Writer) *Stage {
	return &Stage{out: out, begin: time.Now(), space: "demo-" + strings.ToLower(rand.Text()[:6])}
}

// Run shows the steps in order. It returns an error that names the first step that did not hold. It
// stops what the steps started and removes their files.
func Run(ctx context.Context, out io.Writer, steps []Step) error {
	dir, err := os.MkdirTemp("", "lockstep-example-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	asked := ctx
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()

	s := New(out)
	s.Dir = dir
	defer s.close()
	for i, step := range steps {
		fmt.Fprintf(s.out, "\n[%4.1fs] %d. %s\n", time.Since(s.begin).Seconds(), i+1, step.Title)
		if err := step.Show(ctx, s); err != nil {
			if asked.Err() != nil {
				s.Say("Interrupted.")
				return context.Cause(asked)
			}
			s.Say("DID NOT HOLD: %v", err)
			return fmt.Errorf("step %d, %s: %w", i+1, step.Title, err)
		}
	}
	s.Say("")
	s.Say("All %d steps passed, in %.0f s.", len(steps), time.Since(s.begin).Seconds())
	return nil
}

// Say writes a line of the narration.
func (s *Stage) Say(format string, args ...any) {
	fmt.Fprintf(s.out, "        "+format+"\n", args...)
}

// Name returns the name of a lock of this run.
func (s *Stage) Name(last string) string { return s.space + "/" + last }

// Path returns the path of a file in the folder.
func (s *Stage) Path(name string) string { return filepath.Join(s.Dir, name) }

// Folder makes a new folder in the folder.
func (s *Stage) Folder(name string) (string, error) { return os.MkdirTemp(s.Dir, name+"-") }

// AtEnd has f called at the end of the run, before what was given earlier.
func (s *Stage) AtEnd(f ...func()) { s.closers = append(s.closers, f...) }

func (s *Stage) close() {
	for _, f := range slices.Backward(s.closers) {
		f()
	}
}

// Lockstep makes a command of the lockstep program with its locks at the URL of a backend.
func (s *Stage) Lockstep(ctx context.Context, backend string, args ...string) (*exec.Cmd, error) {
	program, err := Program()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(Environment(), "LOCKSTEP_BACKEND="+backend)
	cmd.Dir = s.Dir
	return cmd, nil
}

// Output runs a command and returns what it prints. The error shows what it complained about.
func Output(cmd *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// Environment is that of this process without what is meant for another cluster.
func Environment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "LOCKSTEP_") })
}

// Program finds the lockstep program: next to this one, where "make build" puts both, else on PATH.
func Program() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), "lockstep")); err == nil {
		return path, nil
	}
	path, err := exec.LookPath("lockstep")
	if err != nil {
		return "", fmt.Errorf("the lockstep program is neither in %s nor on PATH: run \"make build\"", filepath.Dir(self))
	}
	return filepath.Abs(path)
}

// Sleep waits for d, or until ctx is done.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
