package replica

import (
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// An endOfGrant is a way in which a grant ends without a request from its holder on its own stream.
type endOfGrant struct {
	name string
	end  func(c *cluster, h *host, k *client, claim command.ClaimStatus)
	// What the holder's stream gets: a claim in this state or, if zero, the end of the session with
	// this code.
	state command.State
	code  command.Code
}

var endsOfGrants = []endOfGrant{
	{"a release by a call with the secret", func(c *cluster, h *host, k *client, claim command.ClaimStatus) {
		c.call(h, k.unary(c, lead.Release{Claim: command.Release{Seq: claim.Seq, Token: claim.Token}}))
	}, command.Released, 0},
	{"a cancel by a call with the secret", func(c *cluster, h *host, k *client, claim command.ClaimStatus) {
		c.call(h, k.unary(c, lead.Cancel{Claim: command.Cancel{Seq: claim.Seq}}))
	}, command.Cancelled, 0},
	{"a close by a call with the secret", func(c *cluster, h *host, k *client, _ command.ClaimStatus) {
		c.call(h, k.unary(c, lead.Close{}))
	}, 0, command.SessionUnknown},
	{"a revocation of the claim", func(c *cluster, h *host, k *client, claim command.ClaimStatus) {
		id := command.ClaimID{Session: k.id, Seq: claim.Seq}
		c.call(h, lead.Request{Stream: c.newStream(), Body: lead.Revoke{Command: command.Revoke{Claim: id, Token: claim.Token, By: "ann"}}})
	}, command.Revoked, 0},
	{"a revocation of the name", func(c *cluster, h *host, _ *client, _ command.ClaimStatus) {
		c.call(h, lead.Request{Stream: c.newStream(), Body: lead.Revoke{Name: "job", Command: command.Revoke{By: "ann"}}})
	}, command.Revoked, 0},
	{"a revocation of the session", func(c *cluster, h *host, k *client, _ command.ClaimStatus) {
		c.call(h, lead.Request{Stream: c.newStream(), Body: lead.Revoke{Command: command.Revoke{Claim: command.ClaimID{Session: k.id}, By: "ann"}}})
	}, 0, command.SessionRevoked},
	{"the end of the lease", func(c *cluster, _ *host, _ *client, _ command.ClaimStatus) {
		c.run(12 * second)
	}, 0, command.SessionExpired},
	{"an attachment to another stream", func(c *cluster, h *host, k *client, _ command.ClaimStatus) {
		other := *k
		other.attach(h, 0)
	}, 0, command.SessionUnknown},
}

// unary returns a call with the secret of the session.
func (k *client) unary(c *cluster, b lead.Body) lead.Request {
	return lead.Request{Stream: c.newStream(), Session: k.id, Secret: &k.secret, Body: b}
}

func TestTheHolderIsToldOfEveryEndThatItDidNotAskFor(t *testing.T) {
	for _, way := range endsOfGrants {
		t.Run(way.name, func(t *testing.T) {
			c := newCluster(t, 3, nil)
			h := c.leader()
			k := c.open(h, 10_000)
			way.end(c, h, k, k.acquire("job"))
			c.run(100 * ms)
			if told := k.changes(); way.state != 0 && (len(told) != 1 || told[0].State != way.state) {
				t.Errorf("the holder was told %+v, want %v", told, way.state)
			}
			if ended, ok := k.over(); way.code != 0 && (!ok || ended.Code != way.code) {
				t.Errorf("the holder was told %+v, want %v", ended, way.code)
			}
		})
	}
}

// TestTheHolderLearnsOfEveryEndWhenItIsBack is the same for a holder whose stream is broken at that
// moment, and which comes back to another leader.
func TestTheHolderLearnsOfEveryEndWhenItIsBack(t *testing.T) {
	for _, way := range endsOfGrants {
		t.Run(way.name, func(t *testing.T) {
			c := newCluster(t, 3, nil)
			h := c.leader()
			k := c.open(h, 10_000)
			claim := k.acquire("job")
			c.send(h, k.request(lead.Gone{}))
			way.end(c, h, k, claim)
			next := c.hosts[h.id%3]
			c.lead(next.id)
			k.number += 5
			a, missed := k.attach(next, claim.Change)
			ended, over := k.over()
			switch attached, ok := a.(lead.Attached); {
			case way.state != 0 && (!ok || len(missed) != 1 || missed[0].State != way.state || attached.Change != missed[0].Change):
				t.Errorf("attach was answered %+v behind %+v, want %v", a, missed, way.state)
			case way.state == 0 && ok && way.code == command.SessionUnknown:
				// Attached elsewhere before: it has the session again.
			case way.state == 0 && (ok || over != (way.code != command.SessionUnknown) || ended.Code != way.code && over):
				t.Errorf("attach was answered %+v behind %+v, want the end with %v", a, ended, way.code)
			}
		})
	}
}

func TestAWaiterIsToldOfACancelByAnother(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	a, b := c.open(h, 60_000), c.open(h, 60_000)
	a.acquire("job")
	waiting := b.acquire("job")
	c.call(h, b.unary(c, lead.Cancel{Claim: command.Cancel{Seq: waiting.Seq}}))
	if told := b.changes(); len(told) != 1 || told[0].State != command.Cancelled {
		t.Errorf("the waiter was told %+v", told)
	}
}
