package redisserver

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// A Server is a running redis-server, or one that was killed and can be restarted with Start. It is
// safe for concurrent use.
type Server struct {
	// Process is the server's process: Kill, Stop, Start, Freeze and Thaw are those of testbed.
	*testbed.Process

	address string
	log     string
}

// Start starts a server and waits up to 30 s until it is serving. The caller must close it.
func Start(c Config) (*Server, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("redis server: %w", err)
	}
	if err := checkFree(c.Address); err != nil {
		return nil, err
	}
	log := filepath.Join(c.Dir, "redis-server.log")
	p, err := testbed.Start(testbed.Command{
		Path: c.Program, Args: c.args(), Env: c.Env, Dir: c.Dir, Log: log,
		Ready: func() error { return ping(c.Address) },
	})
	if err != nil {
		return nil, fmt.Errorf("%w (Debian: apt-get install redis-server)", err)
	}
	return &Server{Process: p, address: c.Address, log: log}, nil
}

// Start starts the server again after Kill or Stop, and waits until it is serving.
func (s *Server) Start() error {
	if s.PID() == 0 {
		if err := checkFree(s.address); err != nil {
			return err
		}
	}
	return s.Process.Start()
}

// checkFree checks that nothing else is listening: it would answer in the server's place, and all
// would seem well.
func checkFree(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("redis server: its address is taken: %w", err)
	}
	return l.Close()
}

// Address is the host:port where the server listens. It never changes.
func (s *Server) Address() string { return s.address }

// Log is the file with the server's output.
func (s *Server) Log() string { return s.log }

// Close stops the server, frozen or not, within 2 s. Its directory stays.
func (s *Server) Close() {
	s.Thaw() // a frozen server would not notice that it has to stop; one that is not running has nothing to thaw
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	s.Stop(ctx)
}

// patience is how long a ready server may take to answer.
const patience = time.Second

// ping asks the server whether it is serving. A server that requires a password is; one that is
// still loading its data is not.
func ping(address string) error {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(answer, "+PONG"), strings.HasPrefix(answer, "-NOAUTH"):
		return nil
	default:
		return fmt.Errorf("it answers %q", strings.TrimSpace(answer))
	}
}
