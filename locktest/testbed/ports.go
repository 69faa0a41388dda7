package testbed

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

const (
	lowest  = 10_000
	highest = 32_767
	// maxTries bounds the search for one port; a machine on which so many are taken is out of ports.
	maxTries = 1_000
)

// Addresses finds addresses for servers that will be stopped and started again.
//
// A server that lets the kernel choose gets a port of the range from which the kernel also draws the ports of outgoing
// connections. While it is down, any program's connection may take that port. So these ports are below that range, which begins at
// 32768 on Linux.
//
// It gives so many different addresses of the form 127.0.0.1:port on which nobody listens. They are free
// when it returns, and likely to stay so: no two calls draw the same ports but by chance.
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

func listen() (net.Listener, error) {
	var last error
	for range maxTries {
		port := lowest + rand.IntN(highest-lowest+1)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return l, nil
		}
		last = err
	}
	return nil, fmt.Errorf("find a free port: %w", last)
}
