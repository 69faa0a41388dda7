package client

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client/internal/wirefake"
)

func guardOf(endpoints ...string) *guard {
	return newGuard(Config{Endpoints: endpoints}.withDefaults())
}

// twoClusters returns the addresses of two nodes, each its own cluster.
func twoClusters(t *testing.T) []string {
	_, a := wirefake.Start(t, 1)
	_, b := wirefake.Start(t, 1)
	return []string{a[0].Address(), b[0].Address()}
}

// nobody returns an address where nothing is listening.
func nobody(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestACallThatIsCutShortDecidesNothingForOthers(t *testing.T) {
	t.Parallel()
	g := guardOf(twoClusters(t)...)
	short, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // the turn comes first in some
		if err := g.check(short); err != nil || g.isChecked() {
			t.Fatalf("cut short: %v, checked %t", err, g.isChecked())
		}
	}
	if err := g.check(t.Context()); !errors.Is(err, ErrTwoClusters) {
		t.Errorf("the next call: %v, want ErrTwoClusters", err)
	}
}

func TestEndpointsThatDidNotAnswerAreAskedAgain(t *testing.T) {
	t.Parallel()
	two := twoClusters(t)
	for name, before := range map[string][]string{
		"nobody answered":     {nobody(t), nobody(t)},
		"a minority answered": {two[0], nobody(t), nobody(t)},
	} {
		g := guardOf(before...)
		if err := g.check(t.Context()); err != nil || g.isChecked() {
			t.Fatalf("%s: %v, checked %t; want that the call may be made, and another survey later", name, err, g.isChecked())
		}
		g.cfg.Endpoints = two // they are up now
		g.last.until = time.Time{}
		if err := g.check(t.Context()); !errors.Is(err, ErrTwoClusters) {
			t.Errorf("%s: the next call: %v, want ErrTwoClusters", name, err)
		}
	}
}

func TestAMajorityThatDoesNotTellItsClusterIsAskedOnce(t *testing.T) {
	t.Parallel()
	c, nodes := wirefake.Start(t, 2)
	c.SetID("")
	g := guardOf(nodes[0].Address(), nodes[1].Address(), nobody(t))
	if err := g.check(t.Context()); err != nil || !g.isChecked() {
		t.Errorf("%v, checked %t", err, g.isChecked())
	}
}

func TestARestoreInTheMiddleOfASurveyIsNoClash(t *testing.T) {
	t.Parallel()
	c, nodes := wirefake.Start(t, 3)
	var mu sync.Mutex
	restored := false
	restore := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		mu.Lock() // one answer after the other, with the restore after the first one
		defer mu.Unlock()
		err := invoke(ctx, method, req, reply, cc, opts...)
		if !restored {
			restored = true
			c.SetID(idB)
		}
		return err
	}
	g := newGuard(Config{
		Endpoints:   []string{nodes[0].Address(), nodes[1].Address(), nodes[2].Address()},
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(restore)},
	}.withDefaults())
	if err := g.check(t.Context()); err != nil || g.cluster() != idB || !g.isChecked() {
		t.Errorf("%v, cluster %s, checked %t", err, g.cluster(), g.isChecked())
	}
}

func TestWhileItIsNotCertainWhichClusterIsThereTheServiceIsUnavailable(t *testing.T) {
	t.Parallel()
	_, nodes := wirefake.Start(t, 1)
	g := guardOf(nodes[0].Address(), nobody(t), nobody(t))
	g.mu.pin = pin{idA, "n1:1"}
	if err := g.check(t.Context()); !errors.Is(err, lockstep.ErrUnavailable) || errors.Is(err, ErrTwoClusters) || g.isChecked() {
		t.Errorf("%v, checked %t", err, g.isChecked())
	}
}
