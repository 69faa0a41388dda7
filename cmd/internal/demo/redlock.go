//go:build linux

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/redis/clockjump"
	"github.com/lockstep-dev/lockstep/adapter/redis/redisserver"
	"github.com/lockstep-dev/lockstep/adapter/redis/redlock"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/fence/filefence"
	"github.com/lockstep-dev/lockstep/locktest/testbed"
)

// redlockSteps each start five servers of their own.
var redlockSteps = []step{
	{"A clock jumps: the lock is granted twice", clockJump},
	{"A server restarts without what it had stored: the lock is granted twice", forgetfulRestart},
	{"A holder pauses: the lock is another's when it writes", pausedHolder},
}

// redlockTTL is long, so that no lease ends by itself during the first two steps.
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

func (s *stage) startMasters() (*masters, error) {
	redis.SetLogger(silent{})
	library, err := clockjump.Build(s.dir)
	if err != nil {
		return nil, err
	}
	m := &masters{}
	for i := range masterCount {
		if err := s.startMaster(m, i, library); err != nil {
			return nil, err
		}
	}
	dead, err := testbed.Addresses(4)
	if err != nil {
		return nil, err
	}
	m.a = append(slices.Clone(m.a[:3]), dead[0], dead[1])
	m.b = append([]string{dead[2], dead[3]}, m.b[2:]...)
	s.say("Five Redis servers, a to e, without persistence. A reaches a, b and c; B reaches c, d and e: each a majority.")
	return m, nil
}

func (s *stage) startMaster(m *masters, i int, library *clockjump.Library) error {
	dir, err := os.MkdirTemp(s.dir, "redis-")
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
	s.closers = append(s.closers, server.Close)
	m.servers, m.clocks = append(m.servers, server), append(m.clocks, clock)
	m.a, m.b = append(m.a, server.Address()), append(m.b, server.Address())
	return nil
}

// locker returns a new client of Redlock.
func (s *stage) locker(addresses []string) (*redlock.Locker, error) {
	var clients []*redis.Client
	for _, address := range addresses {
		c := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1})
		s.closers = append(s.closers, func() { c.Close() })
		clients = append(clients, c)
	}
	l, err := redlock.New(clients, redlock.Config{TTL: redlockTTL})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		l.Close(ctx) // the servers are stopped anyway
	})
	return l, nil
}

func clockJump(ctx context.Context, s *stage) error {
	return s.grantTwice(ctx, "jump", func(m *masters) error {
		s.say("The clock of c jumps ahead by a minute. Redis ends keys by the wall clock: c has forgotten A.")
		return m.clocks[2].Set(time.Minute)
	})
}

func forgetfulRestart(ctx context.Context, s *stage) error {
	return s.grantTwice(ctx, "restart", func(m *masters) error {
		s.say("c is killed and started again. It kept nothing on disk: it has forgotten A.")
		m.servers[2].Kill()
		return m.servers[2].Start()
	})
}

// grantTwice makes A take a lock, breaks the one master that A and B share, and makes B take it
// too.
func (s *stage) grantTwice(ctx context.Context, name string, fault func(*masters) error) error {
	m, err := s.startMasters()
	if err != nil {
		return err
	}
	one, errA := s.locker(m.a)
	two, errB := s.locker(m.b)
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	name = s.name(name)
	a, err := one.Acquire(ctx, name, lockstep.WithWait(10*time.Second))
	if err != nil {
		return fmt.Errorf("a takes the lock: %w", err)
	}
	if _, err := lockstep.TryAcquire(ctx, two, name); !errors.Is(err, lockstep.ErrBusy) {
		return fmt.Errorf("b tries a lock that a holds: %v, want busy", err)
	}
	s.say("A has the lock, token %d. B tries, and is told that it is busy: so far it excludes.", a.Token())
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
	s.say("B has the lock too, token %d. A believes in its own for another %.0f s. Two holders.", b.Token(), a.Remaining().Seconds())
	return s.guardDecides(ctx, one, name, a.Token(), b.Token())
}

// guardDecides makes both write, the later holder first, to a plain file and to a guarded one.
func (s *stage) guardDecides(ctx context.Context, l lockstep.Locker, name string, a, b lockstep.Token) error {
	if b <= a {
		return fmt.Errorf("the token of B, %d, is not larger than that of A, %d", b, a)
	}
	file, err := filefence.Open(s.path("guarded-"+name[strings.LastIndexByte(name, '/')+1:]), filefence.Config{})
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
	s.say("B writes to a guarded file, then A does, late: refused, the file has seen token %d and A shows %d. The data is B's.", b, a)
	return nil
}

// lateWriter is a job that was allowed to continue when it last checked, and writes once it wakes.
const lateWriter = `echo $LOCKSTEP_TOKEN > A.token; echo $$ > A.pid; while [ ! -e A.go ]; do sleep 0.02; done; echo A > plain`

func pausedHolder(ctx context.Context, s *stage) error {
	m, err := s.startMasters()
	if err != nil {
		return err
	}
	var all []string
	for _, server := range m.servers {
		all = append(all, server.Address())
	}
	s.backend = []string{"LOCKSTEP_BACKEND=redlock://" + strings.Join(all, ",")}
	s.say("Now all five reach everybody. A takes the lock with a lease of %v, under lockstep run.", frozenTTL)
	a, err := s.startWriter(ctx, "A", "-c", lateWriter)
	if err != nil {
		return err
	}
	defer a.kill()
	frozen, err := a.freeze(s)
	if err != nil {
		return err
	}
	s.say("SIGSTOP to everything of A, in the moment before it writes.")
	token, err := s.output(ctx, "run", "-w", "20", s.name("frozen"), "--", "sh", "-c", "echo B > plain; echo $LOCKSTEP_TOKEN > B.token; echo $LOCKSTEP_TOKEN")
	if err != nil {
		return err
	}
	s.say("Its lease runs out. B takes the lock, token %s, and writes.", strings.TrimSpace(string(token)))
	return s.wakeWriter(ctx, a, frozen, all)
}

// wakeWriter wakes A's job before the watcher that would kill it: the scheduler could choose either
// order.
func (s *stage) wakeWriter(ctx context.Context, a *job, frozen []int, addresses []string) error {
	if err := os.WriteFile(s.path("A.go"), nil, 0o600); err != nil {
		return err
	}
	shell, err := s.numbers("A.pid")
	if err != nil || len(shell) != 1 {
		return fmt.Errorf("process of A's job: %v %w", shell, err)
	}
	for _, pid := range append([]int{int(shell[0])}, descendants(int(shell[0]))...) {
		_ = syscall.Kill(pid, syscall.SIGCONT) // some may be gone already
	}
	if !s.waitFor(ctx, "plain", "A\n", 5*time.Second) {
		return errors.New("void: A did not write late")
	}
	for _, pid := range frozen {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	s.say("SIGCONT: A's job goes on where it stopped, and writes. The plain file is A's again: B's write is lost.")
	a.exitCode() // 121, or 0 if the job was done before run checked its lease
	tokens, err := s.bothTokens()
	if err != nil {
		return err
	}
	l, err := s.locker(addresses)
	if err != nil {
		return err
	}
	return s.guardDecides(ctx, l, s.name("frozen"), tokens[0], tokens[1])
}

func (s *stage) bothTokens() (tokens [2]lockstep.Token, err error) {
	for i, who := range []string{"A", "B"} {
		list, err := s.numbers(who + ".token")
		if err != nil || len(list) != 1 {
			return tokens, fmt.Errorf("token of %s: %v %w", who, list, err)
		}
		tokens[i] = lockstep.Token(list[0])
	}
	return tokens, nil
}

// waitFor reports whether a file gets this content in time.
func (s *stage) waitFor(ctx context.Context, file, content string, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for {
		if text, err := os.ReadFile(s.path(file)); err == nil && string(text) == content {
			return true
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return false
		}
		sleep(ctx, 10*time.Millisecond)
	}
}
