package s3server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// What clients of every [Server] need in addition to its address.
const (
	// Region is the region that requests are signed for.
	Region = "us-east-1"
	// Bucket is the bucket, which exists from the start.
	Bucket = "lockstep"
	// AccessKey and SecretKey are the credentials of the one user.
	AccessKey = "lockstep"
	SecretKey = "lockstep-secret" // not a real secret: only this machine can reach the server
)

// health is a path that the server answers without credentials.
const health = "/lockstep-health"

// patience bounds the start of a server, on a machine that is also busy with other tests.
const patience = 60 * time.Second

// A Server is a running S3 server, or one that was killed and can be restarted. It is safe for
// concurrent use, except for Close, which must be the last call.
type Server struct {
	address string
	process *testbed.Process
}

// Start starts a server that keeps its data and its log below dir, which must exist. It returns
// when the server is serving and the bucket exists, within 60 s. If a Server has used dir before,
// its objects are still there.
func Start(dir string) (*Server, error) {
	program, err := Program()
	if err != nil {
		return nil, err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("s3server: directory of the server: %w", err)
	}
	// A directory below the root is a bucket.
	root := filepath.Join(dir, "objects")
	if err := os.MkdirAll(filepath.Join(root, Bucket), 0o755); err != nil {
		return nil, fmt.Errorf("s3server: make the bucket: %w", err)
	}
	addresses, err := testbed.Addresses(1)
	if err != nil {
		return nil, err
	}
	s := &Server{address: addresses[0]}
	s.process, err = testbed.Start(testbed.Command{
		Path: program, Args: arguments(s.address, root), Dir: dir,
		Log: filepath.Join(dir, "versitygw.log"), Patience: patience,
		Ready: s.serves,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func arguments(address, root string) []string {
	return []string{
		"--port", address, "--access", AccessKey, "--secret", SecretKey, "--region", Region,
		"--health", health, "--keep-alive", "--quiet",
		"posix", root,
	}
}

// Address is the host:port where the server listens. It never changes.
func (s *Server) Address() string { return s.address }

// Endpoint is the server's URL. Buckets are addressed by path: URL/BUCKET/KEY.
func (s *Server) Endpoint() string { return "http://" + s.address }

// Kill ends the server at once, as a crash does.
func (s *Server) Kill() { s.process.Kill() }

// Start starts the server again after Kill, and waits until it is serving.
func (s *Server) Start() error { return s.process.Start() }

// Restart kills the server and restarts it with its stored data.
func (s *Server) Restart() error {
	s.Kill()
	return s.Start()
}

// Freeze suspends the server; Thaw resumes it.
func (s *Server) Freeze() error { return s.process.Freeze() }

// Thaw resumes a frozen server.
func (s *Server) Thaw() error { return s.process.Thaw() }

// Close kills the server. The data stays.
func (s *Server) Close() { s.process.Kill() }

// serves returns nil if the server answers.
func (s *Server) serves() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint()+health, nil)
	if err != nil {
		return err
	}
	// It keeps no connections open, so that none is left when a server has ended.
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New("the server says " + response.Status)
	}
	return nil
}
