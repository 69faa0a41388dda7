package redisserver

import (
	"cmp"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// Persistence says what a server keeps across a crash.
type Persistence int

const (
	// Forget keeps everything in memory only: a restarted server is empty.
	Forget Persistence = iota
	// AppendAlways writes every command to disk before answering it (appendonly yes, appendfsync
	// always).
	AppendAlways
)

func (p Persistence) String() string {
	switch p {
	case Forget:
		return "forget"
	case AppendAlways:
		return "append always"
	default:
		return fmt.Sprintf("Persistence(%d)", int(p))
	}
}

// Config configures a server.
type Config struct {
	// Dir is an existing directory for the data and the log of only this server. Required.
	Dir string
	// Address is the host:port where it listens; the host is an IP address of this machine.
	// Default: a free port on 127.0.0.1, which the server keeps when restarted.
	Address string
	// Persistence is what it keeps across a crash. Default: Forget.
	Persistence Persistence
	// ReplicaOf is the address of the server that this one replicates. Start does not wait for the
	// initial copy. Default: none.
	ReplicaOf string
	// Program is the server's program. Default: redis-server.
	Program string
	// Args are further options, which override those from the other fields, such as "--maxmemory",
	// "4mb".
	Args []string
	// Env is added to the environment, such as a library that changes the server's clock:
	// LD_PRELOAD=...
	Env []string
}

// withDefaults checks the fields and fills in the empty ones.
func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, &lockstep.InvalidError{Field: "Dir", Rule: "must name an existing directory"}
	}
	dir, err := filepath.Abs(c.Dir) // the server changes its working directory
	if err != nil {
		return c, fmt.Errorf("directory of the server: %w", err)
	}
	c.Dir, c.Program = dir, cmp.Or(c.Program, "redis-server")
	if c.Persistence != Forget && c.Persistence != AppendAlways {
		return c, &lockstep.InvalidError{Field: "Persistence", Value: c.Persistence.String(), Rule: "must be Forget or AppendAlways"}
	}
	if c.Address == "" {
		free, err := testbed.Addresses(1)
		if err != nil {
			return c, err
		}
		c.Address = free[0]
	}
	if err := checkAddress("Address", c.Address); err != nil {
		return c, err
	}
	if c.ReplicaOf != "" {
		return c, checkAddress("ReplicaOf", c.ReplicaOf)
	}
	return c, nil
}

func checkAddress(field, address string) error {
	host, port, err := net.SplitHostPort(address)
	if number, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil || number == 0 || host == "" {
		return &lockstep.InvalidError{Field: field, Value: lockstep.Excerpt(address), Rule: "must be host:port with a port from 1 to 65535"}
	}
	return nil
}

// args are the options of the program. A later one overrides an earlier one.
func (c Config) args() []string {
	host, port, _ := net.SplitHostPort(c.Address)
	args := []string{
		"--bind", host, "--port", port, "--dir", c.Dir, "--daemonize", "no",
		"--save", "", // no snapshots: they would bring back old state
		"--repl-diskless-sync-delay", "0", // do not make a replica wait for others
	}
	if c.Persistence == AppendAlways {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	}
	if c.ReplicaOf != "" {
		host, port, _ := net.SplitHostPort(c.ReplicaOf)
		args = append(args, "--replicaof", host+" "+port)
	}
	return append(args, c.Args...)
}
