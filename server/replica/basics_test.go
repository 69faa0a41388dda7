package replica

import (
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

func TestALockIsGrantedReleasedAndGrantedToTheNextInLine(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	a, b := c.open(h, ttl), c.open(h, ttl)
	first := a.acquire("team/job")
	if first.State != command.Granted || first.Token < tokenFloor(wall0) {
		t.Fatalf("first claim %+v, want it granted with a token of at least %d", first, tokenFloor(wall0))
	}
	if got := b.acquire("team/job"); got.State != command.Queued || got.Position != 1 {
		t.Fatalf("second claim %+v, want it queued as the next", got)
	}
	if a := a.call(lead.Release{Claim: command.Release{Seq: first.Seq, Token: first.Token}}); a.(lead.Claimed).Claim.State != command.Released {
		t.Fatalf("release answered %+v", a)
	}
	told := b.changes()
	if len(told) != 1 || told[0].State != command.Granted || told[0].Token <= first.Token {
		t.Fatalf("the waiter was told %+v, want one grant with a token above %d", told, first.Token)
	}
	c.run(100 * ms)
	for _, o := range c.hosts {
		if o.r.machine.Hash() != h.r.machine.Hash() {
			t.Errorf("replica %d has hash %x, the leader %x", o.id, o.r.machine.Hash(), h.r.machine.Hash())
		}
	}
}
