package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/examples/internal/account"
	"github.com/lockstep-dev/lockstep/examples/internal/actor"
	"github.com/lockstep-dev/lockstep/examples/internal/stage"
	"github.com/lockstep-dev/lockstep/examples/internal/timeline"
	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// What A and B add to the balance.
const (
	addsA = 10
	addsB = 50
)

// beat separates two events so that the picture shows which came first.
const beat = 250 * time.Millisecond

// A performance is one scene in progress.
type performance struct {
	*stage.Stage
	scene
	service        *service
	account        account.Pair // as an observer sees it
	cable          *testbed.Proxy
	a, b           *actor.Actor
	tokenA, tokenB lockstep.Token
	believed       time.Time // end of the lease as A last saw it
	struck         time.Time
	refusal        string
	tale           *tale
}

// cast starts the actors.
func (set *set) cast(ctx context.Context, s *stage.Stage, sc scene) (p *performance, err error) {
	p = &performance{Stage: s, scene: sc, service: set.service, tale: newTale(set.service.leader)}
	name := s.Name(sc.name)
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if p.account, err = account.Open(ctx, set.store.URL, name); err != nil {
		return nil, err
	}
	other, err := testbed.NewCable() // for B, never cut
	if err != nil {
		return nil, err
	}
	if p.cable, err = testbed.NewCable(); err != nil {
		return nil, err
	}
	s.AtEnd(other.Close, p.cable.Close)
	start := func(who string, cable *testbed.Proxy) (*actor.Actor, error) {
		cmd := exec.Command(self, actorArgument, "--store", set.store.URL, "--name", name, "--cable", cable.Address(), "--ttl", pauseTTL.String())
		cmd.Env = append(stage.Environment(), backendVariable+"="+set.service.url) // which may have a password
		return actor.Start(who, cmd)
	}
	if p.a, err = start("A", p.cable); err != nil {
		return nil, err
	}
	if p.b, err = start("B", other); err != nil {
		p.a.Close()
		return nil, err
	}
	return p, nil
}

func (p *performance) close() {
	p.a.Close()
	p.b.Close()
}

func (p *performance) strike(ctx context.Context) error {
	p.struck = time.Now()
	return p.scene.strike(p, ctx)
}

// beginA makes A take the lock.
func (p *performance) beginA(ctx context.Context) error {
	grant, err := p.acquire(ctx, p.a)
	if err != nil {
		return err
	}
	p.tokenA = grant.Token
	p.tale.begin = grant.At.Add(-beat)
	p.tale.held(laneA, grant.At, grant.Token)
	p.Say("A takes the lock, token %d. B waits for it.", grant.Token)
	return nil
}

// queueB makes B wait for the lock.
func (p *performance) queueB(ctx context.Context) error {
	p.tale.waits(laneB, time.Now())
	if err := p.b.Acquire(); err != nil {
		return err
	}
	stage.Sleep(ctx, 2*beat) // so that it does wait when A is struck
	return ctx.Err()
}

// lookA makes A read, and check its lease for the last time.
func (p *performance) lookA(ctx context.Context) error {
	seen, err := p.a.Look(ctx)
	if err != nil {
		return err
	}
	if seen.Plain != account.Opening || seen.Guarded != account.Opening {
		return fmt.Errorf("the initial balances are %d and %d, want %d", seen.Plain, seen.Guarded, account.Opening)
	}
	p.believed = seen.At.Add(seen.Remaining)
	p.Say("A reads %d in both, sees that its lease lasts another %.1f s, and computes.", seen.Plain, seen.Remaining.Seconds())
	return nil
}

func (p *performance) acquire(ctx context.Context, who *actor.Actor) (actor.Report, error) {
	if err := who.Acquire(); err != nil {
		return actor.Report{}, err
	}
	return who.Await(ctx)
}

// takeOver waits for B's grant and makes B change the accounts.
func (p *performance) takeOver(ctx context.Context) error {
	grant, err := p.b.Await(ctx)
	if err != nil {
		return err
	}
	p.tokenB = grant.Token
	p.tale.held(laneB, grant.At, grant.Token)
	p.Say("A's lease ends. B is granted the lock %.1f s later, token %d.", grant.At.Sub(p.struck).Seconds(), grant.Token)
	if p.tokenB <= p.tokenA {
		return fmt.Errorf("the token of B, %d, is not larger than that of A, %d", p.tokenB, p.tokenA)
	}
	return p.change(ctx)
}

// change is B's work.
func (p *performance) change(ctx context.Context) error {
	if _, err := p.b.Look(ctx); err != nil {
		return err
	}
	if err := p.b.Add(addsB); err != nil {
		return err
	}
	wrote, err := p.b.Await(ctx)
	if err != nil {
		return err
	}
	if wrote.Refusal != "" {
		return fmt.Errorf("the guard refused B, which holds the lock: %s", wrote.Refusal)
	}
	p.tale.mark(lanePlain, wrote.At, timeline.Wrote, fmt.Sprintf("B writes %d", wrote.Plain))
	p.tale.mark(laneGuarded, wrote.At, timeline.Wrote, fmt.Sprintf("B writes %d", wrote.Guarded))
	p.Say("B reads %d, writes %d to both, and releases the lock.", account.Opening, wrote.Plain)
	stage.Sleep(ctx, 2*beat)
	gone, err := p.b.Release(ctx)
	if err != nil {
		return err
	}
	p.tale.over(laneB, gone.At)
	stage.Sleep(ctx, beat)
	return nil
}

// writeLate lets A continue with what it read.
func (p *performance) writeLate(ctx context.Context) error {
	if err := p.a.Add(addsA); err != nil {
		return err
	}
	if err := p.relent(p, ctx); err != nil {
		return err
	}
	wrote, err := p.a.Await(ctx)
	if err != nil {
		return err
	}
	p.refusal = wrote.Refusal
	p.tale.mark(lanePlain, wrote.At, timeline.Damaged, fmt.Sprintf("A writes %d: B's %d is lost", wrote.Plain, addsB))
	p.tale.mark(laneGuarded, wrote.At, timeline.Refused, "A is refused: "+older(p.tokenA, p.tokenB))
	p.tale.over(laneA, p.believed)
	return nil
}

// judge checks the accounts.
func (p *performance) judge(ctx context.Context) error {
	plain, errPlain := p.account.Plain.Read(ctx)
	guarded, errGuarded := p.account.Guarded.Read(ctx)
	if err := errors.Join(errPlain, errGuarded); err != nil {
		return err
	}
	if plain != account.Opening+addsA {
		return fmt.Errorf("%w: it has %d", errVoid, plain)
	}
	p.Say("Without a guard: the balance is %d. B's %d is lost, and nobody noticed.", plain, addsB)
	if p.refusal == "" || guarded != account.Opening+addsB {
		return fmt.Errorf("the guarded account has %d, want %d; A was told %q", guarded, account.Opening+addsB, p.refusal)
	}
	p.Say("With the guard: the balance is %d. A's write was refused:", guarded)
	p.Say("  %s", p.refusal)
	return nil
}

// again makes A repeat its work, now that it knows.
func (p *performance) again(ctx context.Context) error {
	stage.Sleep(ctx, 2*beat)
	p.cable.Heal()
	asked := time.Now()
	grant, err := p.acquire(ctx, p.a)
	if err != nil {
		return err
	}
	p.tale.waits(laneA, asked)
	p.tale.held(laneA, grant.At, grant.Token)
	if _, err := p.a.Look(ctx); err != nil {
		return err
	}
	if err := p.a.Add(addsA); err != nil {
		return err
	}
	wrote, err := p.a.Await(ctx)
	if err != nil {
		return err
	}
	p.tale.mark(laneGuarded, wrote.At, timeline.Wrote, fmt.Sprintf("A writes %d", wrote.Guarded))
	if guarded, err := p.account.Guarded.Read(ctx); err != nil || guarded != account.Opening+addsA+addsB {
		return fmt.Errorf("the guarded account has %d, want %d: %w", guarded, account.Opening+addsA+addsB, err)
	}
	p.Say("A acquires the lock again, token %d, reads %d and writes %d: nothing is lost.", grant.Token, wrote.Guarded-addsA, wrote.Guarded)
	stage.Sleep(ctx, 2*beat)
	gone, err := p.a.Release(ctx)
	p.tale.over(laneA, gone.At)
	return err
}
