package pgserver

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// Config configures a server.
type Config struct {
	// Settings are added to the configuration, such as "synchronous_commit": "off". They override
	// those of this package.
	Settings map[string]string
}

// A Server is a PostgreSQL server that can be stopped in every way and started again. Its methods
// must not be called concurrently.
type Server struct {
	dir     string
	owner   string
	address string
	process *testbed.Process
}

// settings configure a small server that keeps what it acknowledges.
var settings = map[string]string{
	"fsync":          "on",
	"shared_buffers": "16MB",
	// The suites open many small pools at once.
	"max_connections": "300",
}

// Start creates a new database cluster and starts the server. It waits until the server is serving,
// for at most 30 s. The caller must close it.
func Start(c Config) (*Server, error) {
	s, err := prepare()
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	if err := s.launch(c); err != nil {
		s.Close()
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	return s, nil
}

// prepare prepares the directory and address of the server.
func prepare() (*Server, error) {
	addresses, err := testbed.Addresses(1)
	if err != nil {
		return nil, err
	}
	s := &Server{owner: serverUser(), address: addresses[0]}
	s.dir, err = makeDirectory(s.owner)
	return s, err
}

// launch creates the database cluster and starts the server for the first time.
func (s *Server) launch(c Config) error {
	initdb, err := find("initdb", "postgresql")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	err = testbed.Run(ctx, testbed.Command{
		// The output of initdb need not survive a power cut, hence no-sync.
		Path: initdb, Args: []string{"-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"},
		Dir: s.dir, User: s.owner,
	})
	if err != nil {
		return err
	}
	return s.serve(c)
}

// serve starts the server on its data.
func (s *Server) serve(c Config) error {
	program, err := find("postgres", "postgresql")
	if err != nil {
		return err
	}
	s.process, err = testbed.Start(testbed.Command{
		Path: program, Args: s.arguments(c), Dir: s.dir, User: s.owner,
		Log: s.log(), Ready: func() error { return ping(s.URL()) },
	})
	return err
}

func (s *Server) arguments(c Config) []string {
	host, port, _ := net.SplitHostPort(s.address)
	all := maps.Clone(settings)
	all["listen_addresses"], all["port"], all["unix_socket_directories"] = host, port, s.dir
	maps.Copy(all, c.Settings)
	args := []string{"-D", s.data()}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "-c", name+"="+all[name])
	}
	return args
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// log is the file with the server's output.
func (s *Server) log() string { return filepath.Join(s.dir, "log") }

// Address is where the server listens, host:port. It stays the same for the life of the Server.
func (s *Server) Address() string { return s.address }

// URL is the connection string for clients: the database postgres as its superuser.
func (s *Server) URL() string { return URL(s.address) }

// URL is the connection string for clients that use another address, such as a proxy.
func URL(address string) string {
	return "postgres://postgres@" + address + "/postgres?sslmode=disable"
}

// ping returns nil if the server serves a client.
func ping(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err := query(ctx, url, "SELECT 1")
	return err
}

// query sends a statement over a connection of its own, and returns what psql prints: the rows,
// without titles.
func query(ctx context.Context, url, statement string) (string, error) {
	psql, err := find("psql", "postgresql-client")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, psql, "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-Atqc", statement, url)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", statement, err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// maxStarts bounds the tries to start a server whose children outlive it for a moment.
const maxStarts = 10

// Start starts the server again after Kill or Stop, and waits until it is serving.
func (s *Server) Start() (err error) {
	for range maxStarts {
		if err = s.process.Start(); err == nil {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return err
}

// Kill ends the server and its children at once, as in a crash.
func (s *Server) Kill() {
	s.process.Freeze() // so that no child is added; a server that is not running has none
	orphans := children(s.process.PID())
	s.process.Kill()
	for _, pid := range orphans {
		if p, err := os.FindProcess(pid); err == nil {
			p.Kill()
		}
	}
}

// Mode is how a server is stopped.
type Mode int

const (
	// Fast ends all sessions and flushes everything to disk.
	Fast Mode = iota
	// Immediate ends without writing anything; the next start recovers.
	Immediate
)

// Stop stops the server and waits up to 10 s for it to end, then kills it.
func (s *Server) Stop(m Mode) error {
	signal := syscall.SIGINT
	if m == Immediate {
		signal = syscall.SIGQUIT
	}
	// PostgreSQL expects the signal only at its first process.
	p, err := os.FindProcess(s.process.PID())
	if err == nil {
		err = p.Signal(signal)
	}
	if err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	lock := filepath.Join(s.data(), "postmaster.pid") // it is removed when the server ends
	for end := time.Now().Add(10 * time.Second); exists(lock) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	s.Kill()
	return nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// Close stops the server and deletes its data.
func (s *Server) Close() error {
	if s.process != nil {
		s.Kill()
	}
	return os.RemoveAll(s.dir)
}
