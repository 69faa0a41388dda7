package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/redis/redlock"
	"github.com/lockstep-dev/lockstep/examples/internal/stage"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/fence/filefence"
	"github.com/lockstep-dev/lockstep/internal/testbed"
	"github.com/lockstep-dev/lockstep/internal/testbed/clockjump"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
)

// steps each begin with five servers of their own.
var steps = []stage.Step{
	{Title: "A clock jumps: the lock is granted twice", Show: clockJump},
	{Title: "A server restarts without its data: the lock is granted twice", Show: forgetfulRestart},
	{Title: "A holder pauses: another one has the lock when it writes", Show: pausedHolder},
}

// masterCount is how many masters Redlock has.
const masterCount = 5

// redlockTTL is long: no lease ends by itself while the first two steps look.
const redlockTTL = 30 * time.Second

// masters are five Redis servers without persistence. A reaches only a, b and c, and B only c, d
// and e, so that their majorities have a single master in common, c.
type masters struct {
	servers []*redisserver.Server
	clocks  []*clockjump.Clock
	a, b    []string // addresses as A and B know them
}

// silent keeps the library from printing which servers it cannot reach: they are unreachable on
// purpose.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func startMasters(s *stage.Stage) (*masters, error) {
	redis.SetLogger(silent{})
	library, err := clockjump.Build(s.Dir)
	if err != nil {
		return nil, err
	}
	m := &masters{}
	for i := range masterCount {
		if err := startMaster(s, m, i, library); err != nil {
			return nil, err
		}
	}
	dead, err := testbed.Addresses(4)
	if err != nil {
		return nil, err
	}
	m.a = append(slices.Clone(m.a[:3]), dead[0], dead[1])
	m.b = append([]string{dead[2], dead[3]}, m.b[2:]...)
	s.Say("Five Redis servers, a to e, without persistence. A reaches a, b and c; B reaches c, d and e: each a majority.")
	return m, nil
}

func startMaster(s *stage.Stage, m *masters, i int, library *clockjump.Library) error {
	dir, err := os.MkdirTemp(s.Dir, "redis-")
	if err != nil {
		return err
	}
	clock, err := library.Clock(dir)
	if err != nil {
		return err
	}
	server, err := redisserver.Start(redisserver.Config{Dir: dir, Env: clock.Env()})
	if err != nil {
		return fmt.Errorf("server %c: %w", 'a'+i, err)
	}
	s.AtEnd(server.Close)
	m.servers, m.clocks = append(m.servers, server), append(m.clocks, clock)
	m.a, m.b = append(m.a, server.Address()), append(m.b, server.Address())
	return nil
}

// locker makes one client of Redlock.
func locker(s *stage.Stage, addresses []string) (*redlock.Locker, error) {
	var clients []*redis.Client
	for _, address := range addresses {
		c := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1})
		s.AtEnd(func() { c.Close() })
		clients = append(clients, c)
	}
	l, err := redlock.New(clients, redlock.Config{TTL: redlockTTL})
	if err != nil {
		return nil, err
	}
	s.AtEnd(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		l.Close(ctx) // the servers are stopped anyway
	})
	return l, nil
}

func clockJump(ctx context.Context, s *stage.Stage) error {
	return grantTwice(ctx, s, "jump", func(m *masters) error {
		s.Say("The clock of c jumps ahead by a minute. Redis expires keys by the wall clock: c has forgotten A.")
		return m.clocks[2].Set(time.Minute)
	})
}

func forgetfulRestart(ctx context.Context, s *stage.Stage) error {
	return grantTwice(ctx, s, "restart", func(m *masters) error {
		s.Say("c is killed and restarted. It has nothing on disk: it has forgotten A.")
		m.servers[2].Kill()
		return m.servers[2].Start()
	})
}

// grantTwice lets A take a lock, breaks the one master that A and B have in common, and lets B take
// it too.
func grantTwice(ctx context.Context, s *stage.Stage, name string, fault func(*masters) error) error {
	m, err := startMasters(s)
	if err != nil {
		return err
	}
	one, errA := locker(s, m.a)
	two, errB := locker(s, m.b)
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	name = s.Name(name)
	a, err := one.Acquire(ctx, name, lockstep.WithWait(10*time.Second))
	if err != nil {
		return fmt.Errorf("a takes the lock: %w", err)
	}
	if _, err := lockstep.TryAcquire(ctx, two, name); !errors.Is(err, lockstep.ErrBusy) {
		return fmt.Errorf("b tries a lock that a holds: %v, want busy", err)
	}
	s.Say("A has the lock, token %d. B tries, and finds it busy: so far, mutual exclusion holds.", a.Token())
	if err := fault(m); err != nil {
		return err
	}
	b, err := two.Acquire(ctx, name, lockstep.WithWait(10*time.Second))
	if err != nil {
		return fmt.Errorf("b takes the lock: %w", err)
	}
	if a.Check() != nil || b.Check() != nil {
		return fmt.Errorf("the fault did not grant twice: a says %v, b says %v", a.Check(), b.Check())
	}
	s.Say("B has the lock too, token %d. A believes in its lock for another %.0f s. Two holders.", b.Token(), a.Remaining().Seconds())
	return guardDecides(ctx, s, one, name, a.Token(), b.Token())
}

// guardDecides lets both write, the later holder first, to a plain file and to a guarded one.
func guardDecides(ctx context.Context, s *stage.Stage, l lockstep.Locker, name string, a, b lockstep.Token) error {
	if b <= a {
		return fmt.Errorf("the token of B, %d, is not larger than that of A, %d", b, a)
	}
	file, err := filefence.Open(s.Path("guarded-"+name[strings.LastIndexByte(name, '/')+1:]), filefence.Config{})
	if err != nil {
		return err
	}
	source, err := fence.For(l, "demo", name)
	if err != nil {
		return err
	}
	if err := file.Write(ctx, source.Grant(b), []byte("B\n")); err != nil {
		return fmt.Errorf("b writes: %w", err)
	}
	err = file.Write(ctx, source.Grant(a), []byte("A, late\n"))
	if !errors.Is(err, fence.ErrStale) {
		return fmt.Errorf("the guard said %v to the late write, want a refusal", err)
	}
	content, err := file.Read(ctx)
	if err != nil || string(content) != "B\n" {
		return fmt.Errorf("the guarded file has %q, %v", content, err)
	}
	s.Say("B writes to a guarded file, then A does, late: refused, the file has seen token %d and A presents %d. B's data is intact.", b, a)
	return nil
}

func pausedHolder(ctx context.Context, s *stage.Stage) error {
	m, err := startMasters(s)
	if err != nil {
		return err
	}
	var all []string
	for _, server := range m.servers {
		all = append(all, server.Address())
	}
	backend := "redlock://" + strings.Join(all, ",")
	s.Say("Now A and B reach all five. A takes the lock with a lease of %v, under lockstep run.", frozenTTL)
	a, err := startWriter(ctx, s, backend)
	if err != nil {
		return err
	}
	defer a.kill()
	frozen, err := a.freeze()
	if err != nil {
		return err
	}
	s.Say("SIGSTOP to all processes of A, just before it writes.")
	b, err := s.Lockstep(ctx, backend, "run", "-w", "20", s.Name("frozen"), "--", "sh", "-c", "echo B > plain; echo $LOCKSTEP_TOKEN > B.token; echo $LOCKSTEP_TOKEN")
	if err != nil {
		return err
	}
	token, err := stage.Output(b)
	if err != nil {
		return err
	}
	s.Say("Its lease expires. B takes the lock, token %s, and writes.", strings.TrimSpace(string(token)))
	return wakeWriter(ctx, s, a, frozen, all)
}

// wakeWriter wakes A's job before the watcher that would kill it: the order is the scheduler's to
// choose.
func wakeWriter(ctx context.Context, s *stage.Stage, a *job, frozen []int, addresses []string) error {
	if err := os.WriteFile(s.Path("A.go"), nil, 0o600); err != nil {
		return err
	}
	shell, err := numbers(s, "A.pid")
	if err != nil || len(shell) != 1 {
		return fmt.Errorf("process of A's job: %v %w", shell, err)
	}
	for _, pid := range append([]int{int(shell[0])}, descendants(int(shell[0]))...) {
		_ = stage.Resume(pid) // those that are gone need no waking
	}
	if !waitFor(ctx, s, "plain", "A\n", 5*time.Second) {
		return errors.New("void: A did not write late")
	}
	for _, pid := range frozen {
		_ = stage.Resume(pid)
	}
	s.Say("SIGCONT: A's job continues where it stopped, and writes. The plain file has A's data: B's write is lost.")
	<-a.done // 121, or 0 when the job was done before run had looked at its lease
	tokens, err := bothTokens(s)
	if err != nil {
		return err
	}
	l, err := locker(s, addresses)
	if err != nil {
		return err
	}
	return guardDecides(ctx, s, l, s.Name("frozen"), tokens[0], tokens[1])
}

func bothTokens(s *stage.Stage) (tokens [2]lockstep.Token, err error) {
	for i, who := range []string{"A", "B"} {
		list, err := numbers(s, who+".token")
		if err != nil || len(list) != 1 {
			return tokens, fmt.Errorf("token of %s: %v %w", who, list, err)
		}
		tokens[i] = lockstep.Token(list[0])
	}
	return tokens, nil
}

// waitFor reports whether a file gets this content in time.
func waitFor(ctx context.Context, s *stage.Stage, file, content string, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for {
		if text, err := os.ReadFile(s.Path(file)); err == nil && string(text) == content {
			return true
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return false
		}
		stage.Sleep(ctx, 10*time.Millisecond)
	}
}
