package pgserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// A Bouncer is a pgbouncer in transaction mode in front of a Server: each transaction may run on
// another connection. Kill, Stop and Start act on its process.
type Bouncer struct {
	*testbed.Process
	address string
}

// bouncerConfig has placeholders for addresses and ports: the server's, then its own. User names
// are not checked, since the server trusts everyone.
const bouncerConfig = `[databases]
* = host=%s port=%s user=postgres
[pgbouncer]
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 2000
default_pool_size = 20
server_login_retry = 1
ignore_startup_parameters = extra_float_digits
`

// StartBouncer starts a pgbouncer in front of the server. The caller must close it before the
// server.
func StartBouncer(s *Server) (*Bouncer, error) {
	program, err := find("pgbouncer", "pgbouncer")
	if err != nil {
		return nil, err
	}
	addresses, err := testbed.Addresses(1)
	if err != nil {
		return nil, fmt.Errorf("start pgbouncer: %w", err)
	}
	b := &Bouncer{address: addresses[0]}
	file, err := b.configure(s)
	if err != nil {
		return nil, fmt.Errorf("start pgbouncer: %w", err)
	}
	b.Process, err = testbed.Start(testbed.Command{
		Path: program, Args: []string{file}, Dir: s.dir, User: s.owner,
		Log: file + ".log", Ready: func() error { return ping(b.URL()) },
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// configure writes the configuration and returns its file.
func (b *Bouncer) configure(s *Server) (string, error) {
	host, port, _ := net.SplitHostPort(s.address)
	ownHost, ownPort, _ := net.SplitHostPort(b.address)
	file := filepath.Join(s.dir, "pgbouncer-"+ownPort+".ini")
	if err := os.WriteFile(file, fmt.Appendf(nil, bouncerConfig, host, port, ownHost, ownPort), 0o600); err != nil {
		return "", err
	}
	return file, give(file, s.owner)
}

// Address is where pgbouncer listens, host:port.
func (b *Bouncer) Address() string { return b.address }

// URL is the connection string for clients.
func (b *Bouncer) URL() string { return URL(b.address) }

// Close stops it.
func (b *Bouncer) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	b.Stop(ctx)
}
