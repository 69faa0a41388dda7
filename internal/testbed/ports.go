package testbed

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

const (
	lowest  = 10_000
	highest = 32_767
	// maxTries bounds the search for one port: after that many failures, the machine has no ports
	// left.
	maxTries = 1_000
)

// Addresses finds addresses for servers that are stopped and restarted.
//
// A port chosen by the kernel comes from the range for outgoing connections. While the server is
// down, any program's connection may take that port. So these ports are below that range, which
// starts at 32768 on Linux.
//
// It returns count different addresses of the form 127.0.0.1:port on which no one listens. They
// belong to this process until it ends: no other call returns them, in any process, so tests may
// run in parallel and stop their servers for a while.
func Addresses(count int) ([]string, error) {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	var found []string
	for range count {
		l, err := listen()
		if err != nil {
			return nil, err
		}
		held = append(held, l)
		found = append(found, l.Addr().String())
	}
	return found, nil
}

// claims hold the UDP twins of the ports, which no server here uses. The system frees them when the
// process ends.
var claims struct {
	sync.Mutex
	held []net.PacketConn
}

func listen() (net.Listener, error) {
	var last error
	for range maxTries {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(lowest+rand.IntN(highest-lowest+1)))
		claim, err := net.ListenPacket("udp", address)
		if err != nil {
			last = err
			continue
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			claim.Close()
			last = err
			continue
		}
		claims.Lock()
		claims.held = append(claims.held, claim)
		claims.Unlock()
		return l, nil
	}
	return nil, fmt.Errorf("find a free port: %w", last)
}
