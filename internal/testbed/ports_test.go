package testbed_test

import (
	"fmt"
	"net"
	"strconv"
	"testing"

	"github.com/lockstep-dev/lockstep/internal/testbed"
)

func TestAddressesDifferAndAreBelowThoseOfOutgoingConnections(t *testing.T) {
	found, err := testbed.Addresses(30)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, address := range found {
		_, text, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		port, err := strconv.Atoi(text)
		if err != nil || port >= 32_768 || port < 1024 || seen[address] {
			t.Errorf("address %s: %v, given before: %v", address, err, seen[address])
		}
		seen[address] = true
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Errorf("%s is not free: %v", address, err)
			continue
		}
		defer l.Close()
	}
}

func ExampleAddresses() {
	found, err := testbed.Addresses(3)
	if err != nil {
		panic(err)
	}
	fmt.Println(len(found), "addresses")
	// Output: 3 addresses
}

func TestAPortIsClaimedUntilTheProcessEnds(t *testing.T) {
	found, err := testbed.Addresses(1)
	if err != nil {
		t.Fatal(err)
	}
	// Another process would claim the port in this way.
	if c, err := net.ListenPacket("udp", found[0]); err == nil {
		c.Close()
		t.Errorf("%s can be claimed again", found[0])
	}
	l, err := net.Listen("tcp", found[0])
	if err != nil {
		t.Fatalf("a server cannot listen on it: %v", err)
	}
	l.Close()
}
