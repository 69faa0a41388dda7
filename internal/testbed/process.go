package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
)

// A Command says how to start a server.
type Command struct {
	// Path is the program: a path, or a name to look up in PATH.
	Path string
	Args []string
	// Env is added to the environment of this process.
	Env []string
	// Dir is the working directory.
	Dir string
	// Log is a file to which the server's output is appended.
	Log string
	// User is the name of the user that the server runs as, for servers that refuse to run as root.
	// Empty: the current user.
	User string
	// Ready reports whether the server is serving; it is called until it returns nil. Nil: the
	// server is ready once it has started.
	Ready func() error
	// Patience bounds the wait for Ready. Default: 30 s.
	Patience time.Duration
}

// A Process is a server that can be killed and started again. It is safe for concurrent use.
type Process struct {
	command Command

	mu   sync.Mutex
	cmd  *exec.Cmd     // nil while it is not running
	gone chan struct{} // closed when cmd has ended
}

// Start starts a server and waits until it is ready.
func Start(c Command) (*Process, error) {
	if _, err := exec.LookPath(c.Path); err != nil {
		return nil, fmt.Errorf("the server %s is not installed: %w", c.Path, err)
	}
	if c.Patience == 0 {
		c.Patience = 30 * time.Second
	}
	p := &Process{command: c}
	return p, p.Start()
}

// Start starts the server again after Kill or Stop, and waits until it is ready.
func (p *Process) Start() error {
	gone, err := p.launch()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.command.Path, err)
	}
	if p.command.Ready == nil {
		return nil
	}
	if err := p.awaitReady(gone); err != nil {
		p.Kill()
		return fmt.Errorf("%s is not serving: %w\n%s", p.command.Path, err, tail(p.command.Log))
	}
	return nil
}

func (p *Process) launch() (gone chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return nil, errors.New("it is already running")
	}
	cmd := exec.Command(p.command.Path, p.command.Args...)
	cmd.Env, cmd.Dir = append(os.Environ(), p.command.Env...), p.command.Dir
	if err := isolate(cmd, p.command.User); err != nil {
		return nil, err
	}
	if p.command.Log != "" {
		file, err := os.OpenFile(p.command.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		cmd.Stdout, cmd.Stderr = file, file
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	gone = make(chan struct{})
	p.cmd, p.gone = cmd, gone
	go func() {
		defer close(gone)
		cmd.Wait() // its log shows how it ended
	}()
	return gone, nil
}

func (p *Process) awaitReady(gone chan struct{}) error {
	deadline := time.Now().Add(p.command.Patience)
	for {
		err := p.command.Ready()
		if err == nil {
			return nil
		}
		select {
		case <-gone:
			return fmt.Errorf("it has ended: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %v: %w", p.command.Patience, err)
		}
	}
}

// Kill ends the server and its children at once, as in a crash. It does nothing if the server is
// not running.
func (p *Process) Kill() { p.end(func(*exec.Cmd) {}, 0) }

// Stop asks the server to end, and kills it if ctx is done first.
func (p *Process) Stop(ctx context.Context) {
	limit := 10 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline)
	}
	p.end(terminate, limit)
}

func (p *Process) end(ask func(*exec.Cmd), within time.Duration) {
	p.mu.Lock()
	cmd, gone := p.cmd, p.gone
	p.cmd = nil
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	ask(cmd)
	select {
	case <-gone:
	case <-time.After(within):
	}
	kill(cmd)
	<-gone
}

// Freeze suspends the server; Thaw resumes it.
func (p *Process) Freeze() error { return p.with(freeze) }

// Thaw resumes a frozen server.
func (p *Process) Thaw() error { return p.with(thaw) }

func (p *Process) with(f func(*exec.Cmd) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("%s is not running", p.command.Path)
	}
	return f(p.cmd)
}

// PID is the process id, or zero if the server is not running.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// logTail bounds what an error shows of a server's log.
const logTail = 2 << 10

func tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return string(text[max(len(text)-logTail, 0):])
}
