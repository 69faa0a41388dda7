package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/examples/internal/account"
	"github.com/lockstep-dev/lockstep/examples/internal/locks"
	"github.com/lockstep-dev/lockstep/examples/internal/stage"
	"github.com/lockstep-dev/lockstep/examples/internal/timeline"
)

// pauseTTL is short, since every scene waits for its end, but long enough for renewals on a busy
// machine.
const pauseTTL = 3 * time.Second

// A Pause configures the demo of a client that writes late.
type Pause struct {
	// Backend is one of [Backends], which is then started, or the URL of a running one.
	Backend string
	// Store is one of [account.Kinds]. It is started.
	Store string
	// SVG is the file for the timelines as a picture. It is written at the end. Empty: none.
	SVG string
	// Width is how many columns the timelines may take.
	Width int
}

// run shows, in about half a minute, how a client that was frozen or cut off beyond its lease
// writes late: into a plain account, where it destroys what the next holder wrote, and into a
// guarded one, which refuses it. It is an error when the plain account is not destroyed: then
// nothing was shown.
func run(ctx context.Context, out io.Writer, p Pause) error {
	picture, err := openPicture(p.SVG)
	if err != nil {
		return fmt.Errorf("open the picture: %w", err)
	}
	defer picture.Close()
	set := &set{Pause: p}
	if err := stage.Run(ctx, out, set.steps()); err != nil {
		return err
	}
	if err := draw(picture, set.charts); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}

// openPicture checks before the demo starts that the picture can be written. The file keeps its
// content until then.
func openPicture(path string) (*os.File, error) {
	if path == "" {
		return nil, nil
	}
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
}

func draw(picture *os.File, charts []timeline.Chart) error {
	if picture == nil {
		return nil
	}
	if err := picture.Truncate(0); err != nil {
		return err
	}
	_, err := picture.WriteString(timeline.SVG(charts...))
	return err
}

// A set is what the scenes share.
type set struct {
	Pause
	service *service
	store   *account.Store
	charts  []timeline.Chart
}

// A scene is one way in which a client can be too late.
type scene struct {
	name  string
	title string
	// strike makes A late. relent undoes that when A is to write; it is called once.
	strike func(*performance, context.Context) error
	relent func(*performance, context.Context) error
}

func (set *set) steps() []stage.Step {
	steps := []stage.Step{{Title: "A lock service, and a store with a plain and a guarded account", Show: set.open}}
	for _, sc := range set.scenes() {
		steps = append(steps, stage.Step{Title: sc.title, Show: func(ctx context.Context, s *stage.Stage) error { return set.perform(ctx, s, sc) }})
	}
	return steps
}

func (set *set) scenes() []scene {
	scenes := []scene{
		{"freeze", "A is frozen beyond its lease", (*performance).freeze, (*performance).thaw},
		{"cut", "A is cut off from the lock service", (*performance).cutOff, (*performance).awaitLoss},
	}
	if strings.Contains(set.Backend, "://") {
		return scenes // the servers are not ours
	}
	return append(scenes, scene{"change", changeTitle(set.Backend), (*performance).changeLeader, (*performance).thaw})
}

func (set *set) open(ctx context.Context, s *stage.Stage) (err error) {
	if set.service, err = startService(ctx, s, set.Backend); err != nil {
		return err
	}
	if err := set.checkFenced(); err != nil {
		return err
	}
	if set.store, err = account.Start(ctx, set.Store, s.Dir); err != nil {
		return err
	}
	s.AtEnd(set.store.Close)
	s.Say("The locks are in %s, the accounts in %s. A and B are separate processes.", set.service.shown, set.store.Name)
	s.Say("Both may change an account with %d, under one lock with a lease of %v: A adds %d, B adds %d.", account.Opening, pauseTTL, addsA, addsB)
	s.Say("The account is kept twice: plain, and behind a guard that remembers the latest token it has seen.")
	return nil
}

// checkFenced rejects a backend whose tokens are useless to a guard.
func (set *set) checkFenced() error {
	l, err := locks.Open(set.service.url, locks.Config{TTL: pauseTTL, Patience: time.Second})
	if err != nil {
		return err
	}
	if scheme, _ := locks.Scheme(set.service.url); !l.Capabilities().Fenced {
		return fmt.Errorf("%w: the tokens of %s do not increase from holder to holder, so no guard can rely on them: see \"lockstep backends\" for those that do", lockstep.ErrUnsupported, scheme)
	}
	return nil
}

// perform plays a scene and draws what happened.
func (set *set) perform(ctx context.Context, s *stage.Stage, sc scene) error {
	p, err := set.cast(ctx, s, sc)
	if err != nil {
		return err
	}
	defer p.close()
	for _, act := range []func(context.Context) error{p.beginA, p.queueB, p.lookA, p.strike, p.takeOver, p.writeLate, p.judge, p.again} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	chart := p.tale.chart(sc.title)
	set.charts = append(set.charts, chart)
	s.Say("")
	for line := range strings.Lines(chart.Text(set.Width - 8)) {
		s.Say("%s", strings.TrimSuffix(line, "\n"))
	}
	return nil
}

// errVoid is wrapped when a demo did not show what it should.
var errVoid = errors.New("void: A's late write did not damage the plain account, so nothing was shown")

// tokenDigits is enough digits to tell the tokens of a scene apart.
const tokenDigits = 4

// short formats a token to fit into a picture.
func short(t lockstep.Token) string { return last(t, tokenDigits) }

// older shows that a is less than b, in as few digits as that takes.
func older(a, b lockstep.Token) string {
	digits, unit := tokenDigits, lockstep.Token(10_000)
	for a%unit >= b%unit { // terminates, since a is less than b
		digits, unit = digits+1, unit*10
	}
	return last(a, digits) + " < " + last(b, digits)
}

func last(t lockstep.Token, digits int) string {
	text := fmt.Sprint(uint64(t))
	if len(text) > digits {
		return ".." + text[len(text)-digits:]
	}
	return text
}
