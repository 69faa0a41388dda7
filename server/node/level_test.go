package node

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/transport"
)

// old configures a cluster that begins without a birth, like one of builds of feature level 1.
func old(cfg *Config) { cfg.Limits = command.DefaultLimits().At(1, command.Limits{}) }

// raised waits until all nodes have reached a level, and checks that it is still the same cluster.
func (c *cluster) raised(level uint32) {
	c.t.Helper()
	c.eventually("the level, the birth and the id of before on all nodes", func() error {
		for name, n := range c.nodes {
			s, life := n.Status(), n.life.Load()
			if s.Level != level || s.ClusterID != ClusterID(c.members) || life == nil || !life.birth.GrewFrom(n.configured()) {
				return fmt.Errorf("%s: level %d, cluster %s, %+v", name, s.Level, s.ClusterID, life)
			}
			for _, m := range s.Members {
				if m.Level != command.FeatureLevel {
					return fmt.Errorf("%s says that %s can %d", name, m.Name, m.Level)
				}
			}
		}
		return nil
	})
}

func TestTheLevelOfARunningClusterRises(t *testing.T) {
	c := newCluster(t, 3, old)
	first := c.hold("jobs/a")
	c.eventually("the members have been met", func() error {
		_, err := answered[lead.LevelRaised](c.connect(c.leader()).call(lead.RaiseLevel{Check: true}))
		return err
	})
	lagging := c.nodes["n1"].introduction()
	if !lagging.Rootless {
		t.Fatal("the cluster has a birth: the test shows nothing")
	}
	a, err := answered[lead.LevelRaised](c.connect(c.leader()).call(lead.RaiseLevel{}))
	if err != nil || a != (lead.LevelRaised{From: 1, To: command.FeatureLevel}) {
		t.Fatalf("answer %+v, %v", a, err)
	}
	c.raised(command.FeatureLevel)
	for name, n := range c.nodes {
		if n.door.seen.objections != nil {
			t.Errorf("%s has refused peers: %+v", name, n.door.seen.objections)
		}
	}
	// One that has not reached the entry yet, as the others see it.
	if err := (peerHandler{c.nodes["n2"].Node}).Admit(lagging, true); err != nil {
		t.Errorf("a peer that lags: %v", err)
	}
	if second := c.hold("jobs/b"); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	c.stopAll()
	c.startAll("n1", "n2", "n3")
	c.raised(command.FeatureLevel)
	c.hold("jobs/c")
}

// answered returns the answer, or the refusal as an error.
func answered[A lead.Answer](a lead.Answer) (A, error) {
	if got, ok := a.(A); ok {
		return got, nil
	}
	var none A
	return none, fmt.Errorf("%+v", a)
}

func TestABirthTellsALaggingPeerFromAnotherCluster(t *testing.T) {
	const configured = "c"
	drawn := command.BirthID{1, 2, 3, 4, 5, 6, 7, 8, 9}
	late := command.LateBirth(drawn, configured)
	other := command.LateBirth(drawn, "another")
	peer := func(birth command.BirthID) *transport.Identity {
		return &transport.Identity{Name: "n2", Level: command.FeatureLevel, Birth: birth.String(), Rootless: birth == command.BirthID{}}
	}
	cases := []struct {
		name  string
		ours  life
		peer  *transport.Identity
		allow bool
	}{
		{"both without a birth", life{rootless: true}, peer(command.BirthID{}), true},
		{"the peer lags", life{birth: late}, peer(command.BirthID{}), true},
		{"this node lags", life{rootless: true}, peer(late), true},
		{"both have the late birth", life{birth: late}, peer(late), true},
		{"the peer lags behind another cluster", life{birth: other}, peer(command.BirthID{}), false},
		{"the peer is of another late birth", life{birth: late}, peer(command.LateBirth(command.BirthID{9}, configured)), false},
		{"this node lags, the peer's cluster grew elsewhere", life{rootless: true}, peer(other), false},
		{"this node has no birth, the peer's cluster began with one", life{rootless: true}, peer(drawn), false},
		{"this node's cluster began with a birth, the peer has none", life{birth: drawn}, peer(command.BirthID{}), false},
	}
	for _, c := range cases {
		n := &Node{cfg: Config{Name: "n1"}}
		config := configured
		n.config.Store(&config)
		n.life.Store(&c.ours)
		if v, text := n.judgeBirth(c.peer); v == 0 != c.allow || v != 0 && v != transport.OtherBirth {
			t.Errorf("%s: verdict %d, %s", c.name, v, text)
		}
	}
}

// holding lists the files of all nodes that contain the text.
func (c *cluster) holding(text []byte) (names []string) {
	c.t.Helper()
	err := filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // it may have been removed meanwhile
		}
		if content, err := os.ReadFile(path); err == nil && bytes.Contains(content, text) {
			names = append(names, path)
		}
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return names
}

func (cl *client) openWith(secret command.Secret) {
	cl.t.Helper()
	a, err := answered[lead.Opened](cl.call(lead.Open{TTL: 60_000, Secret: secret, ClientNumbered: true, Attach: true}))
	if err != nil || a.Secret != secret {
		cl.t.Fatalf("opened %+v, %v", a, err)
	}
	cl.session = a.Session
}

// After the rise, nothing new contains a secret; what the earlier log and snapshots contain is
// removed, even if a node ended in between.
func TestNoFileHasASecretAfterTheRise(t *testing.T) {
	c := newCluster(t, 3, old)
	before, after := command.Secret([]byte("marked secret 1.")), command.Secret([]byte("marked secret 2."))
	first := c.connect(c.leader())
	first.openWith(before)
	first.acquire(1, "jobs/a")
	if len(c.holding(before[:])) == 0 {
		t.Fatal("no file has the secret at level 1: the test shows nothing")
	}
	c.eventually("the rise", func() error {
		_, err := answered[lead.LevelRaised](c.connect(c.leader()).call(lead.RaiseLevel{}))
		return err
	})
	c.raised(command.FeatureLevel)
	c.stopAll()
	c.startAll("n1", "n2", "n3")
	late := c.connect(c.leader())
	late.openWith(after)
	late.acquire(1, "jobs/b")
	c.eventually("no file has the secret of before", func() error {
		if names := c.holding(before[:]); len(names) > 0 {
			return fmt.Errorf("it is in %v", names)
		}
		return nil
	})
	if names := c.holding(after[:]); len(names) > 0 {
		t.Errorf("a secret of after is in %v", names)
	}
	var saved bytes.Buffer
	if err := c.leader().Backup(t.Context(), &saved, "test"); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(saved.Bytes(), before[:]) || bytes.Contains(saved.Bytes(), after[:]) {
		t.Error("a secret is in a backup")
	}
	for name, n := range c.nodes {
		c.eventually(name+" owes no purge any more", func() error {
			due, err := n.store.PurgeDue()
			if err == nil && due {
				err = fmt.Errorf("it does")
			}
			return err
		})
	}
}
