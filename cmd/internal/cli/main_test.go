//go:build unix

package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/cmd/internal/supervise"
	"github.com/lockstep-dev/lockstep/lease"
)

// asProgram makes the test binary act as lockstep, so that tests start real processes, including
// when the program starts itself again.
const asProgram = "LOCKSTEP_TEST_AS_PROGRAM"

// controlDir names a directory whose files control the lock; see [controlled]. Without it the
// program behaves normally.
const controlDir = "LOCKSTEP_TEST_CONTROL"

// asRoot is the name under which the test binary, if it is setuid, becomes a sleeping root process;
// see [world.beyondReach].
const asRoot = "rooted"

func becomeRoot() {
	if err := syscall.Setuid(0); err != nil {
		os.Exit(1)
	}
	os.WriteFile("rooted.up", []byte("up\n"), 0o644)
	time.Sleep(time.Minute)
}

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == asRoot {
		becomeRoot()
		return
	}
	if os.Getenv(asProgram) == "" {
		// The tests may run with HUP ignored, as under nohup. A signal caught here is not ignored
		// in the programs that they start.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		os.Exit(m.Run())
	}
	if code, mine := supervise.Hidden(os.Args); mine {
		os.Exit(code)
	}
	app := NewApp()
	app.Adopt = supervise.Adopt
	if dir := os.Getenv(controlDir); dir != "" {
		app.OpenLocker = func(t Target) (lockstep.Locker, error) { return &controlled{dir: dir, target: t}, nil }
	}
	os.Exit(app.Main(context.Background(), os.Args[1:]))
}

// A controlled Locker has one session with the real lease code. Its service is a directory: while
// the file "busy" exists nothing is granted, while "cut" exists no renewal gets through, and
// "revoked" or "expired" end the lock. The holder's actions create the files "queued", "granted",
// "released" and "closed".
type controlled struct {
	dir    string
	target Target
}

func (c *controlled) has(file string) bool {
	_, err := os.Stat(filepath.Join(c.dir, file))
	return err == nil
}

func (c *controlled) mark(file string) {
	os.WriteFile(filepath.Join(c.dir, file), nil, 0o600)
}

func (c *controlled) unmark(file string) { os.Remove(filepath.Join(c.dir, file)) }

func (c *controlled) Capabilities() lockstep.Capabilities {
	return lockstep.Capabilities{Backend: "controlled", TTL: c.target.TTL, Shared: true, Permits: true, Fenced: true}
}

func (c *controlled) Close(context.Context) error {
	c.mark("closed")
	return nil
}

func (c *controlled) Acquire(ctx context.Context, name string, opts ...lockstep.AcquireOption) (lockstep.Lock, error) {
	cfg, err := lockstep.ResolveAcquire(c.Capabilities(), name, opts...)
	if err != nil {
		return nil, err
	}
	if c.has("down") {
		return nil, lockstep.ErrUnavailable
	}
	text := ""
	for key, value := range cfg.Metadata {
		text += key + "=" + value + "\n"
	}
	os.WriteFile(filepath.Join(c.dir, "metadata"), []byte(text), 0o600)
	deadline := time.Now().Add(cfg.Wait)
	c.mark("queued")
	defer c.unmark("queued")
	for c.has("busy") {
		if cfg.HasWait && !time.Now().Before(deadline) {
			return nil, &lockstep.BusyError{Holders: []lockstep.Claim{{Owner: "s1"}}}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
	return c.grant(name), nil
}

func (c *controlled) grant(name string) lockstep.Lock {
	clock := lease.SystemClock()
	l := &controlledLock{controlled: c, name: name, clock: clock, state: lease.New(c.target.TTL)}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.state.Confirm(clock.Now(), l.state.Sending(clock.Now()))
	go func() { l.cancel(lease.KeepAlive(l.ctx, clock, l.state, l.renew)) }()
	go l.obey()
	c.mark("granted")
	return l
}

type controlledLock struct {
	*controlled
	name   string
	clock  lease.Clock
	state  *lease.State
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func (l *controlledLock) renew(context.Context) error {
	if l.has("cut") {
		return errors.New("cut off")
	}
	return nil
}

// obey ends the lock as the service would.
func (l *controlledLock) obey() {
	for l.ctx.Err() == nil {
		switch {
		case l.has("revoked"):
			l.cancel(&lockstep.LossError{Reason: lockstep.Revoked, By: "alice", Detail: "tests"})
		case l.has("expired"):
			l.cancel(&lockstep.LossError{Reason: lockstep.SessionExpired})
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (l *controlledLock) Name() string             { return l.name }
func (l *controlledLock) Names() []string          { return []string{l.name} }
func (l *controlledLock) Owner() string            { return "session-1" }
func (l *controlledLock) Context() context.Context { return l.ctx }

func (l *controlledLock) Token() lockstep.Token {
	return lockstep.Token(strings.Count(l.name, "/") + 41)
}

func (l *controlledLock) Check() error {
	if l.Remaining() == 0 {
		l.cancel(&lockstep.LossError{Reason: lockstep.LeaseEnded})
	}
	return context.Cause(l.ctx)
}

func (l *controlledLock) Remaining() time.Duration {
	if l.ctx.Err() != nil {
		return 0
	}
	return max(0, l.state.ValidUntil()-l.clock.Now())
}

func (l *controlledLock) Release(context.Context) error {
	l.cancel(lockstep.ErrReleased)
	l.mark("released")
	if errors.Is(context.Cause(l.ctx), lockstep.ErrReleased) {
		return nil
	}
	return context.Cause(l.ctx)
}
