package node

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// changeMember makes a membership change, on whichever node leads, with as many attempts as it
// takes.
func (c *cluster) changeMember(change lead.MemberChange, m command.Member) command.Member {
	c.t.Helper()
	var done lead.MembersChanged
	c.eventually(fmt.Sprintf("change %d of %s", change, m.Name), func() error {
		leader := c.leader()
		if change == lead.RemoveMember && leader.cfg.Name == m.Name {
			return errors.Join(errors.New("handed over"), leader.HandOver(c.t.Context()))
		}
		a := c.connect(leader).call(lead.ChangeMembers{Change: change, Member: m})
		var ok bool
		if done, ok = a.(lead.MembersChanged); !ok {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	return done.Member
}

// add makes a new member on a free port and starts it; it is promoted when it has caught up.
func (c *cluster) add(name string) command.Member {
	c.t.Helper()
	l := listen(c.t)
	m := c.changeMember(lead.AddLearner, command.Member{ID: rand.Uint64(), Name: name, Address: l.Addr().String()})
	if c.joined == nil {
		c.joined = make(map[string]string)
	}
	c.joined[name] = l.Addr().String()
	c.startOn(name, l)
	c.changeMember(lead.PromoteLearner, command.Member{Name: name})
	return m
}

// gone waits for a removed node to end by itself, with an error that says so.
func (c *cluster) gone(name string) {
	c.t.Helper()
	r := c.nodes[name]
	delete(c.nodes, name)
	if err := r.wait(c.t); err == nil || !strings.Contains(err.Error(), "was removed") {
		c.t.Errorf("the removed node %s ended with %v", name, err)
	}
}

func (c *cluster) memberNames() string {
	var names []string
	for _, m := range c.leader().Status().Members {
		names = append(names, m.Name)
	}
	return strings.Join(names, " ")
}

func TestMembersComeAndGo(t *testing.T) {
	c := newCluster(t, 3, nil)
	grant := func() command.Token {
		cl := c.connect(c.leader())
		cl.open()
		return cl.acquire(1, fmt.Sprintf("lock-%d", rand.Uint64()))
	}
	last := grant()
	grows := func(after string) {
		t.Helper()
		token := grant()
		if token <= last {
			t.Errorf("after %s: token %d follows %d", after, token, last)
		}
		last = token
	}
	first := c.add("n4")
	grows("adding n4")

	leader := c.leader().cfg.Name
	c.changeMember(lead.RemoveMember, command.Member{Name: leader})
	c.gone(leader)
	grows("removing the leader")
	if r := c.start(leader); true {
		if err := r.wait(t); err == nil || !strings.Contains(err.Error(), "was removed") {
			t.Errorf("the removed node, started again, ended with %v", err)
		}
		delete(c.nodes, leader)
	}

	// The new member's disk is lost: it must not come back as what it was.
	c.stop("n4")
	if err := os.RemoveAll(filepath.Join(c.dir, "n4")); err != nil {
		t.Fatal(err)
	}
	if err := c.start("n4").wait(t); !errors.Is(err, ErrNotAdded) || !strings.Contains(err.Error(), "member replace") {
		t.Errorf("a joined node with a wiped disk ended with %v", err)
	}
	delete(c.nodes, "n4")
	c.changeMember(lead.RemoveMember, command.Member{Name: "n4"})
	second := c.add("n4")
	if first.ID == second.ID {
		t.Errorf("id %016x was used again", first.ID)
	}
	grows("replacing n4")

	for name := range map[string]bool{"n1": true, "n2": true, "n3": true, "n4": true} {
		if name == leader {
			continue
		}
		c.stop(name)
		c.start(name)
		grows("restarting " + name)
	}
	c.eventually("all have all", func() error { return sameApplied(c) })
	if names := c.memberNames(); strings.Contains(names, leader) || len(strings.Fields(names)) != 3 {
		t.Errorf("members: %s; removed: %s", names, leader)
	}
}

func TestWhatWouldLoseTheQuorumIsRefused(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	var others []string
	for name := range c.members {
		if name != leader.cfg.Name {
			others = append(others, name)
		}
	}
	c.eventually("all are logged", func() error {
		if n := len(leader.Status().Replica.Members); n != 3 {
			return fmt.Errorf("%d of 3", n)
		}
		return nil
	})
	c.stop(others[0])
	cl := c.connect(leader)
	refused := func(change lead.MemberChange, m command.Member, word string) {
		t.Helper()
		c.eventually(word, func() error {
			r, ok := cl.call(lead.ChangeMembers{Change: change, Member: m}).(lead.Refused)
			if !ok || !strings.Contains(r.Limit, word) {
				return fmt.Errorf("%+v", r)
			}
			return nil
		})
	}
	refused(lead.PromoteLearner, command.Member{Name: "n9"}, "no member")
	refused(lead.RemoveMember, command.Member{Name: "n9"}, "no member")
	refused(lead.RemoveMember, command.Member{Name: leader.cfg.Name}, "is the leader")
	refused(lead.AddLearner, command.Member{ID: 7, Name: others[1], Address: "127.0.0.1:9"}, "already")
	refused(lead.AddLearner, command.Member{ID: 7, Name: "n7", Address: c.members[others[1]]}, "already")
	if m := c.changeMember(lead.AddLearner, command.Member{ID: 7, Name: "n7", Address: "127.0.0.1:9"}); m.ID != 7 {
		t.Errorf("added %+v", m)
	}
	if m := c.changeMember(lead.AddLearner, command.Member{ID: 8, Name: "n7", Address: "127.0.0.1:9"}); m.ID != 7 {
		t.Errorf("a retry added %+v", m)
	}
	refused(lead.PromoteLearner, command.Member{Name: "n7"}, "caught up")
}

func TestALaggardIsLedByAMemberThatItDoesNotKnow(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader().cfg.Name
	var laggard string
	for name := range c.members {
		if name != leader {
			laggard = name
		}
	}
	c.eventually("all are logged", func() error {
		if n := len(c.leader().Status().Replica.Members); n != 3 {
			return fmt.Errorf("%d of 3", n)
		}
		return nil
	})
	c.stop(laggard)
	m := c.add("n4")
	c.eventually("n4 leads", func() error { // another may win the election that a handover begins
		l := c.leader()
		if l.cfg.Name == "n4" {
			return nil
		}
		return errors.Join(fmt.Errorf("%s leads", l.cfg.Name), l.HandOverTo(t.Context(), m.ID))
	})
	c.start(laggard)
	c.eventually("the laggard has all", func() error { return sameApplied(c) })
}
