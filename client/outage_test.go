package client_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/client/internal/wirefake"
	"github.com/lockstep-dev/lockstep/internal/testbed"
)

func TestAnOutageIsToldInOneSummary(t *testing.T) {
	t.Parallel()
	say := func(states ...client.EndpointState) *client.OutageError {
		var e client.OutageError
		for i, s := range states {
			detail := map[client.EndpointState]string{client.Follows: "n9:7400", client.WrongPort: "is an HTTP port", client.NotReady: "is not serving at the moment: wait"}[s]
			e.Answers = append(e.Answers, client.EndpointAnswer{Endpoint: "n" + string(rune('1'+i)) + ":7400", State: s, Detail: detail})
		}
		return &e
	}
	const (
		refuses = client.Refuses
		silent  = client.Silent
		lost    = client.NoLeader
	)
	for want, e := range map[string]*client.OutageError{
		"n1:7400 refuses connections":                                                    say(refuses),
		"n1:7400 is an HTTP port":                                                        say(client.WrongPort),
		"all 3 endpoints refuse connections":                                             say(refuses, refuses, refuses),
		"all 2 endpoints know no leader":                                                 say(lost, lost),
		"no majority: 3 of 5 refuse connections, 2 know no leader":                       say(refuses, lost, refuses, lost, refuses),
		"no majority: 1 of 3 refuses connections, 1 does not respond, 1 knows no leader": say(silent, lost, refuses),
		"no node is serving: 1 of 3 refuses connections, 2 know no leader":               say(lost, lost, refuses), // an election
		"no node is serving: 1 of 3 refuses connections, 2 name n9:7400 as the leader":   say(client.Follows, client.Follows, refuses),
		"no node is serving: 1 of 2 refuses connections, n2:7400 is an HTTP port":        say(refuses, client.WrongPort),
		"n1:7400 is not serving at the moment: wait":                                     say(client.NotReady),
	} {
		if got := e.Summary(); got != want {
			t.Errorf("%v\nsays %q\nwant %q", e.Answers, got, want)
		}
		if !errors.Is(e, lockstep.ErrUnavailable) || !strings.HasPrefix(e.Error(), lockstep.ErrUnavailable.Error()) {
			t.Errorf("%v is not ErrUnavailable", e)
		}
	}
	if got, want := say(refuses, lost).List(), "n1:7400 refuses connections, n2:7400 knows no leader"; got != want {
		t.Errorf("list: %q, want %q", got, want)
	}
}

// A peer port closes a connection that does not begin as one of its own.
func TestAPeerPortIsNamedAsAWrongPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.ReadFull(c, make([]byte, 24)) // the client's preface
			c.Close()
		}
	}()
	address := l.Addr().String()
	want := address + " is not the client port of a node, perhaps its peer port (7401 by default): clients use 7400 by default"
	c := newClient(t, nil, func(to *client.Config) {
		*to = client.Config{Endpoints: []string{address}, UnavailableAfter: 2 * time.Second}
	})
	if _, err := c.Acquire(t.Context(), "a"); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("acquire: %v\nwant %q", err, want)
	}
	if e := c.Outage(); e == nil || e.Answers[0].State != client.WrongPort {
		t.Errorf("outage: %+v", e)
	}
}

func TestClientsAndAdminsSayWhatTheEndpointsAnswer(t *testing.T) {
	t.Parallel()
	dead, err := testbed.Addresses(3)
	if err != nil {
		t.Fatal(err)
	}
	cluster, nodes := wirefake.Start(t, 2)
	cluster.Lead(nil)
	cfg := client.Config{Endpoints: append(dead, nodes[0].Address(), nodes[1].Address()), UnavailableAfter: 3 * time.Second}
	const want = "no majority: 3 of 5 refuse connections, 2 know no leader"
	c := newClient(t, nil, func(to *client.Config) { *to = cfg })
	if e := c.Outage(); e != nil {
		t.Errorf("before it was used: %v", e)
	}
	if _, err := c.Acquire(t.Context(), "a"); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("acquire: %v\nwant %q", err, want)
	}
	if e := c.Outage(); e == nil || e.Summary() != want {
		t.Errorf("outage: %v", e)
	}
	admin, err := client.NewAdmin(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.Lock(t.Context(), "a", 0); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("read: %v\nwant %q", err, want)
	}
	cluster.Lead(nodes[1])
	if _, err := admin.Lock(t.Context(), "a", 0); err != nil {
		t.Fatal(err)
	}
	if e := admin.Outage(); e != nil {
		t.Errorf("after a node served: %v", e)
	}
}
