package actor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/examples/internal/account"
	"github.com/lockstep-dev/lockstep/examples/internal/locks"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// patience bounds each step: a demo that hangs shows nothing.
const patience = 30 * time.Second

// A Config says what an actor works with.
type Config struct {
	Backend string        // URL of the backend
	Store   string        // URL of the store: see [account.Open]
	Name    string        // of the lock and of the account
	Cable   string        // what the backend is reached through: see [testbed.NewCable]; empty: a direct connection
	TTL     time.Duration // of the lease
}

// A player is the state of [Serve].
type player struct {
	locker  lockstep.Locker
	source  fence.Source
	account account.Pair
	name    string

	lock           lockstep.Lock
	plain, guarded int // as last read

	out struct {
		sync.Mutex
		*json.Encoder
	}
}

// Serve executes the steps that it reads from in, until in ends.
func Serve(ctx context.Context, cfg Config, in io.Reader, out io.Writer) error {
	p, err := open(ctx, cfg, out)
	if err != nil {
		return fmt.Errorf("actor: %w", err)
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		p.tell(p.step(ctx, strings.Fields(lines.Text())))
	}
	return lines.Err()
}

func open(ctx context.Context, cfg Config, out io.Writer) (p *player, err error) {
	options := locks.Config{TTL: cfg.TTL, Patience: patience}
	if cfg.Cable != "" {
		options.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return testbed.DialThrough(ctx, cfg.Cable, address)
		}
	}
	p = &player{name: cfg.Name}
	p.out.Encoder = json.NewEncoder(out)
	if p.locker, err = locks.Open(cfg.Backend, options); err != nil {
		return nil, err
	}
	if p.source, err = fence.For(p.locker, "demo", cfg.Name); err != nil {
		return nil, err
	}
	p.account, err = account.Open(ctx, cfg.Store, cfg.Name)
	return p, err
}

func (p *player) tell(r Report) {
	p.out.Lock()
	defer p.out.Unlock()
	_ = p.out.Encode(r) // a reader that does not listen has ended
}

func (p *player) step(ctx context.Context, words []string) Report {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := Report{Step: strings.Join(words, " ")}
	if err := p.do(ctx, words, &r); err != nil {
		r.Error = err.Error()
	}
	return r
}

func (p *player) do(ctx context.Context, words []string, r *Report) error {
	switch {
	case len(words) == 1 && words[0] == acquire:
		return p.acquire(ctx, r)
	case p.lock == nil:
		return errors.New("no lock is held yet")
	case len(words) == 1 && words[0] == look:
		return p.look(ctx, r)
	case len(words) == 2 && words[0] == add:
		amount, err := strconv.Atoi(words[1])
		if err != nil {
			return err
		}
		return p.add(ctx, amount, r)
	case len(words) == 1 && words[0] == release:
		return p.lock.Release(ctx)
	default:
		return fmt.Errorf("unknown step %q", words)
	}
}

func (p *player) acquire(ctx context.Context, r *Report) (err error) {
	if p.lock, err = p.locker.Acquire(ctx, p.name); err != nil {
		return err
	}
	r.Token, r.Remaining = p.lock.Token(), p.lock.Remaining()
	context.AfterFunc(p.lock.Context(), func() {
		if err := p.lock.Check(); errors.Is(err, lockstep.ErrLost) {
			p.tell(Report{Step: "lost", Error: err.Error()})
		}
	})
	return nil
}

func (p *player) look(ctx context.Context, r *Report) error {
	for _, each := range []struct {
		account.Account
		read *int
	}{{p.account.Plain, &p.plain}, {p.account.Guarded, &p.guarded}} {
		if err := each.Enter(ctx, p.source.Grant(p.lock.Token())); err != nil {
			return err
		}
		var err error
		if *each.read, err = each.Read(ctx); err != nil {
			return err
		}
	}
	r.Plain, r.Guarded, r.Remaining = p.plain, p.guarded, p.lock.Remaining()
	return p.lock.Check()
}

func (p *player) add(ctx context.Context, amount int, r *Report) error {
	grant := p.source.Grant(p.lock.Token())
	r.Plain, r.Guarded = p.plain+amount, p.guarded+amount
	if err := p.account.Plain.Write(ctx, grant, r.Plain); err != nil {
		return err
	}
	err := p.account.Guarded.Write(ctx, grant, r.Guarded)
	if errors.Is(err, fence.ErrStale) {
		r.Refusal, err = err.Error(), nil
	}
	return err
}
