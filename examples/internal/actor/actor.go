package actor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// An Actor is a process that runs [Serve]. Its methods are for a single goroutine.
type Actor struct {
	name    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan Report // one per step; closed when the process has ended
	errors  bytes.Buffer

	mu   sync.Mutex
	lost []Report
}

// Start starts the process that cmd describes. It runs until Close.
func Start(name string, cmd *exec.Cmd) (*Actor, error) {
	a := &Actor{name: name, cmd: cmd, answers: make(chan Report, 16)}
	cmd.Stderr = &a.errors
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if a.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go a.listen(out)
	return a, nil
}

// listen runs in a goroutine and reads what the process prints.
func (a *Actor) listen(out io.Reader) {
	defer close(a.answers)
	for decoder := json.NewDecoder(out); ; {
		var r Report
		if decoder.Decode(&r) != nil {
			return // the process has ended
		}
		r.At = time.Now()
		if r.Step == "lost" {
			a.mu.Lock()
			a.lost = append(a.lost, r)
			a.mu.Unlock()
			continue
		}
		a.answers <- r
	}
}

// Lost returns the actor's last report of a lost lock.
func (a *Actor) Lost() (r Report, is bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.lost) == 0 {
		return r, false
	}
	return a.lost[len(a.lost)-1], true
}

// PID returns the process id.
func (a *Actor) PID() int { return a.cmd.Process.Pid }

// Acquire starts waiting for the lock; Await returns the answer.
func (a *Actor) Acquire() error { return a.begin(acquire) }

// Look makes the actor enter, read the balances and check its lease.
func (a *Actor) Look(ctx context.Context) (Report, error) { return a.do(ctx, look) }

// Add makes the actor write the balances that it read plus an amount; Await returns the answer.
func (a *Actor) Add(amount int) error { return a.begin(fmt.Sprint(add, " ", amount)) }

// Release makes the actor release its lock.
func (a *Actor) Release(ctx context.Context) (Report, error) { return a.do(ctx, release) }

func (a *Actor) do(ctx context.Context, step string) (Report, error) {
	if err := a.begin(step); err != nil {
		return Report{}, err
	}
	return a.Await(ctx)
}

func (a *Actor) begin(step string) error {
	if _, err := fmt.Fprintln(a.in, step); err != nil {
		return fmt.Errorf("ask %s to %s: %w", a.name, step, err)
	}
	return nil
}

// Await waits for the answer to the current step. If the step failed, it returns an error.
func (a *Actor) Await(ctx context.Context) (Report, error) {
	select {
	case r, alive := <-a.answers:
		switch {
		case !alive:
			_ = a.cmd.Wait() // standard error says why, and is complete once Wait returns
			return r, fmt.Errorf("%s has ended: %s", a.name, bytes.TrimSpace(a.errors.Bytes()))
		case r.Error != "":
			return r, fmt.Errorf("%s: %s: %w", a.name, strings.TrimSpace(r.Step), errors.New(r.Error))
		}
		return r, nil
	case <-ctx.Done():
		return Report{}, fmt.Errorf("%s does not answer: %w", a.name, ctx.Err())
	}
}

// Close kills the process.
func (a *Actor) Close() {
	_ = a.cmd.Process.Kill() // it may have ended already
	for range a.answers {
	}
	_ = a.cmd.Wait() // killed
}
