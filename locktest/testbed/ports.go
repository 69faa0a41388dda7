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
	// maxTries bounds the search for one port; a machine on which so many are taken is out of
	// ports.
	maxTries = 1_000
)

// Addresses finds addresses for servers that will be stopped and started again.
//
// A server that lets the kernel choose gets a port of the range from which the kernel also draws
// the ports of outgoing connections. While it is down, any program's connection may take that port.
// So these ports are below that range, which begins at 32768 on Linux.
//
// It gives so many different addresses of the form 127.0.0.1:port on which nobody listens. They are
// this process's until it ends: no other call gives them, in whichever process, so tests may run
// beside each other and stop their servers for a while.
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

// A claim on a port is its UDP twin, which no server here uses: the system frees it when the
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
