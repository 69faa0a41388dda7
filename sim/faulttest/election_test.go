//go:build unix

package faulttest_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/internal/testbed"
	"github.com/lockstep-dev/lockstep/lease"
	"github.com/lockstep-dev/lockstep/sim/faulttest"
)

var electionsFor = flag.Duration("elections.for", 10*time.Second, "how long TestElectionsUnderFaults hurts leaders")

const (
	contestants = 8
	electionTTL = 3 * time.Second
	electGrace  = 500 * time.Millisecond
	// takeover is how much time may pass from a fault to the next term, and handover after a
	// resignation.
	takeover = electionTTL + electGrace + time.Second
	handover = time.Second
	// outage is the same bound while a server is down as well: all leases start over when another
	// leads, and a claim left in the queue by a lost session has to end first.
	outage = 3*takeover + 5*time.Second
)

// A fault of the leader, with how long the next one may take to lead.
type fault struct {
	name  string
	limit time.Duration
	do    func(*contest, *seat)
}

func leaderFaults() []fault {
	return []fault{
		{"killed", takeover, (*contest).kill},
		{"frozen", takeover, (*contest).freeze},
		{"cut off", takeover, (*contest).cutOff},
		{"resigned", handover, (*contest).resign},
	}
}

// A seat is one of eight, with the network of whichever process occupies it.
type seat struct {
	id      int // of the process
	proxies []*testbed.Proxy
	cmd     *exec.Cmd
	gone    chan struct{}
	stderr  strings.Builder
}

// A contest is one run. Only the goroutine of the test uses it.
type contest struct {
	t       *testing.T
	cluster *faulttest.Cluster
	dir     string
	journal *journal
	entries []entry
	seats   []*seat
	nextID  int
	last    entry // the beginning of the term with the highest token
	idle    bool  // that term has ended
	later   []undoing
	gaps    map[string][]time.Duration
}

// An undoing waits for its time.
type undoing struct {
	at time.Duration
	do func()
}

// TestElectionsUnderFaults runs 8 candidate processes on 3 server processes. Leaders are killed,
// frozen, cut off and asked to resign at random moments, and the server's leader is killed and
// frozen too. The combined journal and the resource then show whether the promises of package
// election were kept.
func TestElectionsUnderFaults(t *testing.T) {
	c := newContest(t)
	faults, rounds := leaderFaults(), 0
	for end := now() + *electionsFor; now() < end; {
		rand.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		for _, f := range faults {
			c.hurt(f, false)
		}
		if rounds++; rounds%2 == 1 {
			c.hurt(faults[0], true)
		}
	}
	c.finish()
}

func newContest(t *testing.T) *contest {
	c := &contest{t: t, cluster: faulttest.Start(t, 3), dir: t.TempDir(), gaps: map[string][]time.Duration{}}
	var err error
	if c.journal, err = openJournal(filepath.Join(c.dir, "journal")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.journal.file.Close() })
	probe := newClient(t, client.Config{Endpoints: c.cluster.Endpoints(), UnavailableAfter: 30 * time.Second})
	if _, err := probe.Acquire(t.Context(), "faults/probe"); err != nil {
		t.Fatal(err)
	}
	if g := probe.Capabilities().Grace; g != electGrace {
		t.Fatalf("the grace is %v, this test counts with %v", g, electGrace)
	}
	for range contestants {
		s := &seat{}
		for _, endpoint := range c.cluster.Endpoints() {
			s.proxies = append(s.proxies, faulttest.NewProxy(t, endpoint))
		}
		c.seats = append(c.seats, s)
		c.sit(s)
	}
	t.Cleanup(c.clear)
	return c
}

// sit starts a process for the seat.
func (c *contest) sit(s *seat) {
	c.nextID++
	s.id = c.nextID
	o := orders{ID: s.id, Endpoints: c.cluster.Endpoints(), Journal: c.path("journal"), Resource: c.path("resource"), TTL: electionTTL}
	for _, p := range s.proxies {
		o.Behind = append(o.Behind, p.Address())
	}
	text, err := json.Marshal(o)
	if err != nil {
		c.t.Fatal(err)
	}
	cmd, gone := exec.Command(os.Args[0]), make(chan struct{})
	cmd.Env = append(os.Environ(), candidateVariable+"="+string(text))
	cmd.Stderr = &s.stderr
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	s.cmd, s.gone = cmd, gone
	go func() {
		_ = cmd.Wait() // the journal records how it ended
		close(gone)
	}()
}

func (c *contest) path(name string) string { return filepath.Join(c.dir, name) }

// clear cleans up after a failed test.
func (c *contest) clear() {
	for _, s := range c.seats {
		_ = s.cmd.Process.Kill()
		<-s.gone
		if s.stderr.Len() > 0 {
			c.t.Logf("seat of process %d: %s", s.id, s.stderr.String())
		}
	}
}

// pump does what is due and reads the journal.
func (c *contest) pump() {
	c.t.Helper()
	c.later = slices.DeleteFunc(c.later, func(u undoing) bool {
		due := now() >= u.at
		if due {
			u.do()
		}
		return due
	})
	found, err := c.journal.read()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range found {
		switch {
		case e.What == began && e.Token > c.last.Token:
			c.last, c.idle = e, false
		case e.What == ended && e.Token == c.last.Token:
			c.idle = true
		}
	}
	c.entries = append(c.entries, found...)
}

// until pumps until holds returns true; it returns false after limit.
func (c *contest) until(limit time.Duration, holds func() bool) bool {
	for end := now() + limit; ; time.Sleep(2 * time.Millisecond) {
		if c.pump(); holds() {
			return true
		}
		if now() > end {
			return false
		}
	}
}

func (c *contest) after(d time.Duration, do func()) {
	c.later = append(c.later, undoing{now() + d, do})
}

func (c *contest) pause(d time.Duration) { c.until(d, func() bool { return false }) }

// leader waits until somebody leads.
func (c *contest) leader() *seat {
	c.t.Helper()
	var s *seat
	if !c.until(outage, func() bool { s = c.seated(c.last.ID); return s != nil && !c.idle }) {
		c.t.Fatalf("nobody has led for %v", outage)
	}
	return s
}

func (c *contest) seated(id int) *seat {
	for _, s := range c.seats {
		if s.id == id {
			return s
		}
	}
	return nil
}

// hurt applies a fault to the leader, with server to the cluster's leader too, and measures how
// long it takes until another one leads.
func (c *contest) hurt(f fault, server bool) {
	c.t.Helper()
	c.leader()
	c.pause(rand.N(1500 * time.Millisecond))
	name, limit := f.name, f.limit
	if server {
		name, limit = "with a server", outage
		c.hurtServer()
	}
	s, before, at := c.leader(), c.last, now()
	f.do(c, s)
	if !c.until(outage, func() bool { return c.last.Token > before.Token }) {
		c.t.Fatalf("%s: nobody has led for %v after term %d", name, outage, before.Token)
	}
	gap := c.last.At - at
	c.gaps[name] = append(c.gaps[name], gap)
	if gap > limit {
		c.t.Errorf("%s: the next term began %v after the fault in term %d, the bound is %v", name, gap, before.Token, limit)
	}
	if server { // its claims of lost sessions end before the next measurement
		c.until(outage, func() bool { return len(c.later) == 0 })
		c.pause(takeover)
	}
}

func (c *contest) note(id int, w what) {
	if err := c.journal.note(entry{ID: id, What: w}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *contest) signal(s *seat, sig syscall.Signal) {
	if err := s.cmd.Process.Signal(sig); err != nil {
		c.t.Errorf("signal %v to process %d: %v", sig, s.id, err)
	}
}

func (c *contest) kill(s *seat) {
	c.signal(s, syscall.SIGKILL)
	<-s.gone
	c.note(s.id, killed)
	c.sit(s)
}

// longerThanLease returns how long a leader is frozen or cut off: the next one is at work when it
// comes back.
func longerThanLease() time.Duration { return takeover + rand.N(1500*time.Millisecond) }

func (c *contest) freeze(s *seat) {
	c.note(s.id, frozen)
	c.signal(s, syscall.SIGSTOP)
	c.after(longerThanLease(), func() { c.signal(s, syscall.SIGCONT) })
}

func (c *contest) cutOff(s *seat) {
	c.note(s.id, cut)
	for _, p := range s.proxies {
		p.Cut()
	}
	c.after(longerThanLease(), func() {
		for _, p := range s.proxies {
			p.Heal()
		}
	})
}

func (c *contest) resign(s *seat) { c.signal(s, syscall.SIGUSR1) }

// hurtServer kills or freezes the leading node for a while.
func (c *contest) hurtServer() {
	i := c.leadingNode()
	if rand.N(2) == 0 {
		c.cluster.Kill(i)
		c.after(time.Second, func() { c.cluster.StartNode(i) })
		return
	}
	pid := c.cluster.Pid(i)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		c.t.Fatal(err)
	}
	c.after(time.Second+rand.N(3*time.Second), func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
}

func (c *contest) leadingNode() int {
	c.t.Helper()
	out, err := c.cluster.Command("status", "-o", "json").Output()
	if err != nil {
		c.t.Fatal(err)
	}
	var status struct{ Leader string }
	if err := json.Unmarshal(out, &status); err != nil || c.cluster.Index(status.Leader) < 0 {
		c.t.Fatalf("no leader in %s: %v", out, err)
	}
	return c.cluster.Index(status.Leader)
}

// finish ends everything gracefully, and has the journal and the resource judged.
func (c *contest) finish() {
	c.until(outage, func() bool { return len(c.later) == 0 })
	c.leader()
	for _, s := range c.seats {
		c.signal(s, syscall.SIGTERM)
	}
	for _, s := range c.seats {
		select {
		case <-s.gone:
		case <-time.After(20 * time.Second):
			c.t.Errorf("process %d does not end", s.id)
		}
	}
	c.pump()
	data, err := os.ReadFile(c.path("resource"))
	if err != nil {
		c.t.Fatal(err)
	}
	lines, err := linesOf(data)
	if err != nil {
		c.t.Fatal(err)
	}
	v := judge(c.entries, lines, electionTTL-lease.Margin(electionTTL)-electionTTL*2/3)
	for _, p := range v.problems {
		c.t.Error(p)
	}
	c.report(v)
}

func (c *contest) report(v verdict) {
	for _, name := range slices.Sorted(slices.Values([]string{"killed", "frozen", "cut off", "resigned", "with a server"})) {
		if g := c.gaps[name]; len(g) > 0 {
			slices.Sort(g)
			c.t.Logf("%s: %d times, the next term began after %v (median), %v at most", name, len(g), ms(g[len(g)/2]), ms(g[len(g)-1]))
		}
	}
	c.t.Logf("%d terms, %d writes accepted, %d late writes refused, %d bodies of frozen leaders met the next term, no other did", v.terms, v.writes, v.refusals, v.overlaps)
	c.t.Logf("%d times no turn at the resource, %d lines of writers that were killed, slowest drain %v", v.busies, v.unconfirmed, ms(v.slowest))
	if n := len(c.gaps["frozen"]); n >= 5 && v.refusals == 0 {
		c.t.Errorf("%d leaders were frozen and no late write was refused: nothing was shown", n)
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
