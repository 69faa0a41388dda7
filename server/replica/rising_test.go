package replica

import (
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// An Open whose secret would be logged after the rise, and as it is, is not taken.
func TestNoSessionIsOpenedWhileTheLevelOfSecretsRises(t *testing.T) {
	c := begunAt(t, 2)
	introduce(c, command.FeatureLevel)
	c.run(second)
	h := c.leader()
	raise := c.send(h, lead.Request{Stream: c.newStream(), Body: lead.RaiseLevel{}})
	open := c.send(h, lead.Request{Stream: c.newStream(), Body: lead.Open{TTL: ttl, Random: [8]byte{1}, ClientNumbered: true}})
	if r, ok := c.answer(h, open).(lead.Refused); !ok || r.Reason != lead.Overloaded {
		t.Errorf("meanwhile: %+v", r)
	}
	if a, ok := c.answer(h, raise).(lead.LevelRaised); !ok || a.To != command.FeatureLevel {
		t.Errorf("raised: %+v", a)
	}
	c.open(h, ttl)
}
