package client

import "testing"

func TestALeaderThatIsNoEndpointIsPartOfAnOutage(t *testing.T) {
	tally := newTally([]string{"n1:7400"})
	tally.failed(EndpointAnswer{"10.0.0.5:7400", Refuses, ""}) // nobody named it
	tally.failed(EndpointAnswer{"n1:7400", Follows, "10.0.0.5:7400"})
	tally.failed(EndpointAnswer{"10.0.0.5:7400", Refuses, ""})
	e := tally.outage()
	const want = "n1:7400 names 10.0.0.5:7400 as the leader, and 10.0.0.5:7400 refuses connections"
	if e == nil || e.Summary() != want {
		t.Errorf("%v, want %q", e, want)
	}
	tally.served()
	if e := tally.outage(); e != nil {
		t.Errorf("after it served: %v", e)
	}
}
