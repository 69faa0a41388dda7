package replica

import (
	"testing"

	"github.com/lockstep-dev/lockstep/server/machine"
)

// An Open whose secret would be logged after the rise, and as it is, is not taken.
func TestNoSessionIsOpenedWhileTheLevelOfSecretsRises(t *testing.T) {
	c := begunAt(t, 2)
	introduce(c, machine.FeatureLevel)
	c.run(second)
	h := c.leader()
	raise := c.send(h, Request{Stream: c.newStream(), Body: RaiseLevel{}})
	open := c.send(h, Request{Stream: c.newStream(), Body: Open{TTL: ttl, Random: [8]byte{1}, ClientNumbered: true}})
	if r, ok := c.answer(h, open).(Refused); !ok || r.Reason != Overloaded {
		t.Errorf("meanwhile: %+v", r)
	}
	if a, ok := c.answer(h, raise).(LevelRaised); !ok || a.To != machine.FeatureLevel {
		t.Errorf("raised: %+v", a)
	}
	c.open(h, ttl)
}
