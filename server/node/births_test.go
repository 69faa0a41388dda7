package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/replica"
	"github.com/lockstep-dev/lockstep/server/transport"
)

// calm is how long a test watches that something does not happen. An election takes some 700 ms.
const calm = 3 * time.Second

// founders makes a cluster in which no node has started yet. missing may name, for all nodes
// started from then on, those that do not exist.
func founders(t *testing.T, size int) (c *cluster, missing *[]string) {
	missing = new([]string)
	c = newCluster(t, 0, func(cfg *Config) {
		for _, name := range *missing {
			if name != cfg.Name {
				cfg.Missing = append(cfg.Missing, name)
			}
		}
	})
	for i := range size {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c.members[fmt.Sprintf("n%d", i+1)] = l.Addr().String()
		l.Close()
	}
	return c, missing
}

func (c *cluster) startAll(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.start(name)
	}
}

func (c *cluster) stopAll() {
	c.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		c.stop(name)
	}
}

func (c *cluster) wipe(names ...string) {
	c.t.Helper()
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(c.dir, name)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// hold takes a lock at the leader and returns its token.
func (c *cluster) hold(name string) command.Token {
	c.t.Helper()
	cl := c.connect(c.leader())
	cl.open()
	return cl.acquire(1, name)
}

// nobodyServes checks for a while that nobody leads a group that issues tokens, and that no node
// ends.
func (c *cluster) nobodyServes() {
	c.t.Helper()
	for began := time.Now(); time.Since(began) < calm; time.Sleep(20 * time.Millisecond) {
		for name, n := range c.nodes {
			if n.Status().Serving {
				c.t.Fatalf("%s serves: a second history", name)
			}
		}
		c.allLive()
	}
}

func (c *cluster) allLive() {
	c.t.Helper()
	for name, n := range c.nodes {
		select {
		case <-n.ended:
			c.t.Fatalf("%s has ended: %v", name, n.err)
		default:
		}
	}
}

// waitsSaying waits until a node says that it takes no part, with these words among others.
func (c *cluster) waitsSaying(name string, words ...string) {
	c.t.Helper()
	c.eventually(name+" says what it waits for", func() error {
		text := c.nodes[name].Status().Waiting
		for _, word := range words {
			if !strings.Contains(text, word) {
				return fmt.Errorf("it says %q, want %q", text, word)
			}
		}
		return nil
	})
}

// oneBirth waits until all running nodes know the same birth.
func (c *cluster) oneBirth() (id string) {
	c.t.Helper()
	c.eventually("all are of one birth", func() error {
		ids := map[string]bool{}
		for _, n := range c.nodes {
			id = n.Status().ClusterID
			ids[id] = true
		}
		if len(ids) != 1 || id == "" || id == ClusterID(c.members) {
			return fmt.Errorf("births %v", ids)
		}
		return nil
	})
	return id
}

// One wiped disk, one node that is down and one that was never up: the two that know nothing are a
// majority, and must not begin a second history next to that of the third.
func TestEmptiedDisksAndNodesThatWereNeverUpBeginNoSecondHistory(t *testing.T) {
	for _, s := range []struct {
		size               int
		late, wiped, alive []string
	}{
		{3, []string{"n2"}, []string{"n3"}, []string{"n1"}},
		{5, []string{"n5"}, []string{"n3", "n4"}, []string{"n1", "n2"}},
	} {
		for _, named := range []bool{false, true} { // the flag may remain in the unit files
			t.Run(fmt.Sprintf("%d nodes, the late one named missing %v", s.size, named), func(t *testing.T) {
				c, missing := founders(t, s.size)
				*missing = s.late
				c.startAll(s.alive...)
				c.startAll(s.wiped...)
				c.hold("jobs/a")
				first := c.oneBirth()
				c.stopAll()
				c.wipe(s.wiped...)
				if !named {
					*missing = nil
				}
				c.startAll(s.late...)
				c.startAll(s.wiped...)
				c.nobodyServes()
				c.waitsSaying(s.wiped[0], s.alive[0]+" (127.0.0.1")
				c.startAll(s.alive...)
				c.nobodyServes() // the wiped ones have forgotten what they acknowledged
				c.waitsSaying(s.wiped[0], "member replace "+s.wiped[0])
				for name, n := range c.nodes {
					if id := n.Status().ClusterID; id != "" && id != first {
						t.Errorf("%s is of birth %s, the cluster of %s", name, id, first)
					}
				}
			})
		}
	}
}

// A cluster that was recreated after everything was lost continues when a node of the previous one
// comes back with its directory.
func TestAReturningNodeOfAnEarlierLifeEndsNobody(t *testing.T) {
	for _, s := range []struct {
		size       int
		anew, past []string
		firstUp    bool // the old node is up while the others begin
	}{
		{3, []string{"n1", "n2"}, []string{"n3"}, false},
		{3, []string{"n1", "n2"}, []string{"n3"}, true},
		{5, []string{"n1", "n2", "n3"}, []string{"n4", "n5"}, false},
	} {
		t.Run(fmt.Sprintf("%d nodes, the past is up first %v", s.size, s.firstUp), func(t *testing.T) {
			c, missing := founders(t, s.size)
			c.startAll(slices.Concat(s.anew, s.past)...)
			c.hold("jobs/a")
			old := c.oneBirth()
			c.stopAll()
			c.wipe(s.anew...)
			*missing = s.past
			if s.firstUp {
				c.startAll(s.past...)
				c.startAll(s.anew...)
				c.nobodyServes()
				c.waitsSaying("n1", "n3 (127.0.0.1", "rejects this node")
				c.stop("n3")
			} else {
				c.startAll(s.anew...)
			}
			c.hold("jobs/a")
			born := c.oneBirth()
			if born == old {
				t.Fatalf("both lives are called %s", born)
			}
			c.startAll(s.past...)
			c.waitsSaying(s.past[0], old, born, "member replace "+s.past[0], "--join")
			for i := range 20 {
				c.hold(fmt.Sprint("jobs/", i))
				c.allLive()
				time.Sleep(calm / 20)
			}
			for _, name := range s.past {
				if st := c.nodes[name].Status(); st.ClusterID != old || st.Serving {
					t.Errorf("%s: cluster %s, serving %v", name, st.ClusterID, st.Serving)
				}
			}
		})
	}
}

func TestAFounderThatWasMissingJoinsTheCluster(t *testing.T) {
	c, missing := founders(t, 3)
	c.startAll("n1", "n2")
	c.nobodyServes()
	c.waitsSaying("n1", "n3 (127.0.0.1", "has not answered")
	c.stopAll()
	*missing = []string{"n3"}
	c.startAll("n1", "n2")
	c.hold("jobs/a")
	c.start("n3")
	c.oneBirth()
	c.eventually("all have applied the same", func() error { return sameApplied(c) })
	*missing = nil
	c.stopAll()
	c.startAll("n1", "n2", "n3")
	c.hold("jobs/b")
	c.oneBirth()
}

// copyDir copies a data directory as an operator might.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(to, 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestAnOlderCopyOfADirectoryIsRefusedHoweverOftenItStarts(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.hold("jobs/a")
	c.oneBirth()
	dir, saved := filepath.Join(c.dir, "n3"), filepath.Join(c.dir, "saved")
	c.stop("n3")
	copyDir(t, dir, saved)
	c.start("n3")
	token := c.hold("jobs/b")
	c.eventually("all have applied the same", func() error { return sameApplied(c) })
	c.stop("n3")
	copyDir(t, saved, dir)
	for i := range 3 {
		c.start("n3")
		c.waitsSaying("n3", "older copy", "member replace n3")
		if next := c.hold(fmt.Sprint("jobs/c", i)); next <= token {
			t.Errorf("token %d after %d", next, token)
		}
		c.allLive()
		c.stop("n3")
	}
}

func TestADirectoryThatRunsTwiceIsAdmittedOnce(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.hold("jobs/a")
	c.stop("n3")
	copyDir(t, filepath.Join(c.dir, "n3"), filepath.Join(c.dir, "clone"))
	c.start("n3")
	c.eventually("all have applied the same", func() error { return sameApplied(c) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := c.config("n3", l)
	cfg.DataDir = filepath.Join(c.dir, "clone")
	clone := c.run(cfg)
	c.nodes["clone"] = clone
	c.waitsSaying("clone", "runs twice", "member replace n3")
	time.Sleep(calm / 2)
	c.allLive()
	if w := c.nodes["n3"].Status().Waiting; w != "" {
		t.Errorf("the first one waits too: %s", w)
	}
	c.hold("jobs/b")
	c.eventually("the first one goes on", func() error {
		return want(c.nodes["n3"].Status().Applied, c.leader().Status().Applied)
	})
}

// clone runs a copy of a node's directory at another address, with the node's name and the
// cluster's secret.
func (c *cluster) clone(name, dir string) *running {
	c.t.Helper()
	cfg := c.config(name, listen(c.t))
	cfg.DataDir = dir
	r := c.run(cfg)
	c.nodes["clone of "+name] = r
	return r
}

// A copy that was taken while the node ran comes with a later start than the node has. It is not
// believed: the node continues, also after a restart, and so does the cluster when all nodes are
// cloned.
func TestAClonedDirectoryLocksOutNobody(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.hold("jobs/a")
	c.oneBirth()
	for _, name := range []string{"n1", "n2", "n3"} {
		copyDir(t, filepath.Join(c.dir, name), filepath.Join(c.dir, "clone", name))
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		c.clone(name, filepath.Join(c.dir, "clone", name))
	}
	for began := time.Now(); time.Since(began) < calm; time.Sleep(50 * time.Millisecond) {
		c.allLive()
		for _, name := range []string{"n1", "n2", "n3"} {
			if st := c.nodes["clone of "+name].Status(); st.Serving || st.Role == Leader {
				t.Fatalf("the clone of %s leads", name)
			}
		}
	}
	for i, name := range []string{"n1", "n2", "n3"} {
		if w := c.nodes[name].Status().Waiting; w != "" {
			t.Errorf("%s waits: %s", name, w)
		}
		c.stop(name)
		c.start(name)
		c.eventually(name+" is back", func() error {
			for _, other := range []string{"n1", "n2", "n3"} {
				for _, m := range c.nodes[other].Status().Members {
					if !m.Reachable {
						return fmt.Errorf("%s does not reach %s: %s", other, m.Name, m.Problem)
					}
				}
			}
			return nil
		})
		c.originalHolds(fmt.Sprint("jobs/b", i))
	}
}

// originalHolds is hold while clones run too.
func (c *cluster) originalHolds(name string) {
	c.t.Helper()
	clones := map[string]*running{}
	for n, r := range c.nodes {
		if strings.HasPrefix(n, "clone") {
			clones[n] = r
			delete(c.nodes, n)
		}
	}
	c.hold(name)
	maps.Copy(c.nodes, clones)
}

// A restarted member is let in without the pauses of refused nodes.
func TestARestartIsLetInAtOnce(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.hold("jobs/a")
	c.oneBirth()
	var slowest time.Duration
	for i := range 5 {
		c.stop("n3")
		c.hold(fmt.Sprint("jobs/b", i))
		c.start("n3")
		began := time.Now()
		c.eventually("n3 and the others reach each other", func() error {
			for _, name := range []string{"n1", "n2", "n3"} {
				for _, m := range c.nodes[name].Status().Members {
					if !m.Reachable {
						return errors.New(name + " does not reach " + m.Name)
					}
				}
			}
			return nil
		})
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("slowest %v", slowest)
	if slowest > 2*time.Second {
		t.Errorf("it took up to %v", slowest)
	}
}

// A member that the others cannot dial for a while after its restart is let in as soon as they can.
func TestARestartIsLetInWhenTheOthersCanDialIt(t *testing.T) {
	var cut atomic.Pointer[string] // an address that nobody can reach
	none := ""
	cut.Store(&none)
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			if address == *cut.Load() {
				return nil, errors.New("no route")
			}
			return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		}
	})
	c.hold("jobs/a")
	c.oneBirth()
	c.stop("n3")
	at := c.members["n3"]
	cut.Store(&at)
	c.start("n3")
	time.Sleep(calm)
	c.allLive()
	cut.Store(&none)
	began := time.Now()
	c.hold("jobs/b")
	c.eventually("n3 follows", func() error {
		if c.nodes["n3"].Status().Leader == 0 {
			return errors.New("n3 knows no leader")
		}
		return sameApplied(c)
	})
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
}

// The copy was taken while n3 ran: its starts do not distinguish it from n3 itself, but it lacks
// what n3 has acknowledged to the leader. It records that it was refused, and stays out when that
// leader is gone.
func TestACopyOfTheLastRunIsRefusedByTheLeader(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.hold("jobs/a")
	c.oneBirth()
	lead := c.leader()
	name, other := "n3", "n2"
	switch lead.cfg.Name {
	case "n3":
		name, other = "n1", "n2"
	case "n2":
		other = "n1"
	}
	dir, saved := filepath.Join(c.dir, name), filepath.Join(c.dir, "saved")
	copyDir(t, dir, saved)
	c.hold("jobs/b")
	c.eventually("all have applied the same", func() error { return sameApplied(c) })
	c.eventually("the leader knows", func() error {
		for _, p := range lead.Status().Replica.Peers {
			if p.Match < lead.Status().Applied {
				return fmt.Errorf("%+v", p)
			}
		}
		return nil
	})
	c.stop(name)
	copyDir(t, saved, dir)
	c.start(name)
	c.waitsSaying(name, "older copy", "acknowledged entry", "member replace "+name)
	c.hold("jobs/c")
	c.allLive()
	c.stop(lead.cfg.Name)
	c.stop(name)
	c.start(name)
	c.waitsSaying(name, "older copy", lead.cfg.Name)
	c.nobodyServes()
	if st := c.nodes[other].Status(); st.Leader != 0 {
		t.Errorf("%s follows %x", other, st.Leader)
	}
}

// A process that is refused under the name of a connected member is not this node's problem.
func TestARefusedKnockMakesNobodyWait(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.hold("jobs/a")
	c.oneBirth()
	at := c.nodes["n1"]
	for _, name := range []string{"n2", "n3"} {
		c.eventually("n1 reaches "+name, func() error { return want(at.reachable(c.nodes[name].id.Load()), true) })
		id := c.nodes[name].introduction()
		id.StartIDs = slices.Clone(id.StartIDs)
		id.StartIDs[0]++
		if err := (peerHandler{at.Node}).Admit(id, false); transport.VerdictOf(err) != transport.OlderCopy {
			t.Fatalf("the second process of %s: %v", name, err)
		}
	}
	if w := at.Status().Waiting; w != "" {
		t.Errorf("n1 waits: %s", w)
	}
}

// What peers report while a node starts is compared with the state after the log was read, not with
// that of the snapshot.
func TestMarksAreComparedAfterTheLogWasApplied(t *testing.T) {
	var early atomic.Bool
	var first sync.Once
	var at atomic.Pointer[running]
	c := newCluster(t, 3, nil)
	c.hold("jobs/a")
	c.stop("n3")
	c.change = func(cfg *Config) {
		cfg.Applied = func([]replica.Applied) {
			first.Do(func() {
				for at.Load() == nil {
					time.Sleep(time.Millisecond)
				}
				early.Store(at.Load().marks.Load() != nil)
			})
		}
	}
	at.Store(c.start("n3"))
	c.eventually("marks", func() error { return want(at.Load().marks.Load() != nil, true) })
	c.eventually("all have applied the same", func() error { return sameApplied(c) })
	if early.Load() {
		t.Error("the marks of the snapshot were compared")
	}
}

// The caller of settle may be a handler that only reports to the peer: the node ends all the same.
func TestALifeThatCannotBeOpenedEndsTheNode(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.leader()
	var ended error
	broken := errors.New("the audit log is full")
	n := &Node{store: c.nodes["n1"].store, fatal: func(err error) { ended = err }}
	n.cfg.Opened = func(string) error { return broken }
	if err := n.settle(life{rootless: true}); err != broken || ended != broken {
		t.Errorf("settle gives %v, the node ends with %v", err, ended)
	}
}

func TestAPeerWithAnotherStateIsRefused(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.hold("jobs/a")
	c.eventually("marks", func() error { return want(len(c.nodes["n1"].introduction().Marks) > 16, true) })
	id := c.nodes["n1"].introduction()
	at := peerHandler{c.nodes["n2"].Node}
	c.eventually("marks at the peer", func() error { return want(len(*c.nodes["n2"].marks.Load()) > 1, true) })
	if err := at.Admit(id, true); err != nil {
		t.Fatalf("its true state: %v", err)
	}
	marks := slices.Clone(id.Marks)
	for i := 8; i < len(marks); i += 16 {
		marks[i]++
	}
	id.Marks = marks
	err := at.Admit(id, true)
	if transport.VerdictOf(err) != transport.Diverged || !strings.Contains(err.Error(), "n1") || !strings.Contains(err.Error(), "n2") {
		t.Errorf("another state: %v", err)
	}
}

// A cluster of feature level 1, such as one begun by an older version, has no birth and continues
// as before.
func TestAClusterWithoutABirthWorks(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.Limits = command.DefaultLimits()
		cfg.Limits.FeatureLevel = 1
	})
	c.hold("jobs/a")
	for i := range 2 {
		c.eventually("the id of the configuration", func() error {
			for _, n := range c.nodes {
				if err := want(n.Status().ClusterID, ClusterID(c.members)); err != nil {
					return err
				}
			}
			return nil
		})
		old := transport.Identity{ClusterID: ClusterID(c.members), Node: c.nodes["n1"].id.Load(), Instance: c.nodes["n1"].store.InstanceID(), Name: "n1"}
		if err := (peerHandler{c.nodes["n2"].Node}).Admit(old, true); err != nil {
			t.Errorf("a peer of an older version: %v", err)
		}
		c.stopAll()
		c.startAll("n1", "n2", "n3")
		c.hold(fmt.Sprint("jobs/b", i))
	}
}

func TestAPeerOfAnOlderVersionCannotJoinANewerCluster(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.hold("jobs/a")
	c.oneBirth()
	old := transport.Identity{ClusterID: ClusterID(c.members), Node: c.nodes["n1"].id.Load(), Instance: c.nodes["n1"].store.InstanceID(), Name: "n1"}
	err := (peerHandler{c.nodes["n2"].Node}).Admit(old, true)
	if transport.VerdictOf(err) != transport.TooOld || !strings.Contains(err.Error(), "node n1 is older than its cluster, upgrade it") {
		t.Errorf("err = %v", err)
	}
	if _, err := (peerHandler{c.nodes["n2"].Node}).Join(transport.Identity{Name: "n9"}); err == nil || !strings.Contains(err.Error(), "node n9 is older than its cluster") {
		t.Errorf("to join: %v", err)
	}
}

func TestAnotherNodesDirectoryIsRefusedByName(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.leader()
	c.stop("n2")
	c.stop("n3")
	c.wipe("n3")
	copyDir(t, filepath.Join(c.dir, "n2"), filepath.Join(c.dir, "n3"))
	err := c.start("n3").wait(t)
	delete(c.nodes, "n3")
	if err == nil || !strings.Contains(err.Error(), "node n2") || !strings.Contains(err.Error(), "this node is n3") {
		t.Errorf("err = %v", err)
	}
}

func TestAnUnknownMissingMemberIsRefused(t *testing.T) {
	for _, name := range []string{"n1", "n9"} {
		_, err := New(Config{
			Name: "n1", DataDir: "d", Members: map[string]string{"n1": "127.0.0.1:1", "n2": "127.0.0.1:2"}, Missing: []string{name},
			Listener: &net.TCPListener{},
		})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAFreshNodeBeginsOnlyWhenItMay has the answers of the others and what results from them.
func TestAFreshNodeBeginsOnlyWhenItMay(t *testing.T) {
	known := transport.Identity{Name: "x"}
	fresh := answer{id: known}
	born := func(birth string) answer { return answer{id: transport.Identity{Name: "x", Birth: birth}} }
	silent := answer{err: errors.New("connection refused")}
	refuses := func(v transport.Verdict, birth string) answer {
		return answer{transport.Identity{Name: "x", Birth: birth}, transport.NotAdmitted(v, "no")}
	}
	replaced := refuses(transport.Replaced, "b1")
	cases := []struct {
		name    string
		answers []answer
		missing []string
		begin   bool
		birth   string
		end     error
	}{
		{name: "alone", begin: true},
		{name: "all are fresh", answers: []answer{fresh, fresh}, begin: true},
		{name: "a majority is fresh, one is silent", answers: []answer{fresh, silent}},
		{name: "the silent one is named missing", answers: []answer{fresh, silent}, missing: []string{"n3"}, begin: true},
		{name: "another one is named missing", answers: []answer{fresh, silent}, missing: []string{"n2"}},
		{name: "the missing one refuses", answers: []answer{fresh, replaced}, missing: []string{"n3"}},
		{name: "two of three are born", answers: []answer{born("b1"), born("b1")}, begin: true, birth: "b1"},
		{name: "one of three is born", answers: []answer{born("b1"), silent}},
		{name: "one is born, one is fresh", answers: []answer{born("b1"), fresh}},
		{name: "two births", answers: []answer{born("b1"), born("b2")}},
		{name: "one of two is born", answers: []answer{born("b1")}, begin: true, birth: "b1"},
		{name: "three of five are born", answers: []answer{born("b1"), born("b1"), born("b1"), silent}, begin: true, birth: "b1"},
		{name: "three of five are born, one of another birth refuses", answers: []answer{born("b1"), born("b1"), born("b1"), refuses(transport.Replaced, "b2")}, begin: true, birth: "b1"},
		{name: "three of five are born, one of them knows us", answers: []answer{born("b1"), born("b1"), born("b1"), replaced}},
		{name: "three of five know us", answers: []answer{replaced, replaced, replaced, fresh}, end: ErrReplaced},
		{name: "one of three knows us", answers: []answer{replaced, silent}},
		{name: "both others know us", answers: []answer{replaced, replaced}, end: ErrReplaced},
		{name: "both others have removed us", answers: []answer{refuses(transport.Removed, "b1"), refuses(transport.Removed, "b1")}, end: ErrRemoved},
		{name: "a cluster without a birth", answers: []answer{{id: transport.Identity{Name: "x", Rootless: true}}, {id: transport.Identity{Name: "x", Rootless: true}}}, begin: true, birth: rootless},
	}
	for _, c := range cases {
		f := founding{missing: c.missing, agreed: map[uint64]bool{}}
		for i := range c.answers {
			f.others = append(f.others, MemberStatus{ID: uint64(i + 2), Name: fmt.Sprint("n", i+2), PeerAddress: "a"})
		}
		d := f.decide(c.answers)
		if d.begin != c.begin || d.birth != c.birth || !errors.Is(d.end, c.end) || !d.begin && d.end == nil && d.waiting == "" {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

func TestAVoteOfOneNodeEndsNobody(t *testing.T) {
	for voters, want := range map[int]int{1: 1, 2: 1, 3: 2, 4: 3, 5: 3, 9: 5} {
		ids := make([]uint64, voters)
		for i := range ids {
			ids[i] = uint64(i + 1)
		}
		if got := enoughOf(ids, 1); got != want {
			t.Errorf("%d voters: %d, want %d", voters, got, want)
		}
	}
}
