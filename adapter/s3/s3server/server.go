package s3server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lockstep-dev/lockstep/locktest/testbed"
)

// What clients of every [Server] need besides its address.
const (
	// Region is what requests are signed for.
	Region = "us-east-1"
	// Bucket is the bucket, which is there from the start.
	Bucket = "lockstep"
	// AccessKey and SecretKey are the credentials of the one user.
	AccessKey = "lockstep"
	SecretKey = "lockstep-secret" // guards nothing: the server serves this machine only
)

// health is a path that the server answers without credentials.
const health = "/lockstep-health"

// patience bounds the start of a server, on a machine that is busy with other tests too.
const patience = 60 * time.Second

// A Server is a running S3 server, or one that was killed and can be started again. It is safe for
// concurrent use, but for Close, which is the last call.
type Server struct {
	address string
	process *testbed.Process
}

// Start starts a server that keeps its data and its log below dir, which exists. It returns when
// the server serves and the bucket is there, within 60 s. A dir that a Server has used before has
// its objects.
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

// Address is host:port where the server listens, the same for all its life.
func (s *Server) Address() string { return s.address }

// Endpoint is the server's URL. Buckets are addressed by path: URL/BUCKET/KEY.
func (s *Server) Endpoint() string { return "http://" + s.address }

// Client makes a client of the server with the options of the SDK, which adjust may change.
func (s *Server) Client(adjust ...func(*s3.Options)) *s3.Client {
	return NewClient(s.Endpoint(), adjust...)
}

// NewClient makes a client of the server at the URL: one of this package, or something in front of
// it.
func NewClient(url string, adjust ...func(*s3.Options)) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(url), UsePathStyle: true, Region: Region,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: AccessKey, SecretAccessKey: SecretKey}, nil
		}),
	}, adjust...)
}

// Kill ends the server at once, as a crash does.
func (s *Server) Kill() { s.process.Kill() }

// Start starts the server again after Kill, and waits until it serves.
func (s *Server) Start() error { return s.process.Start() }

// Restart kills the server and starts it again with what it has stored.
func (s *Server) Restart() error {
	s.Kill()
	return s.Start()
}

// Freeze stops the server without ending it; Thaw lets it go on.
func (s *Server) Freeze() error { return s.process.Freeze() }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() error { return s.process.Thaw() }

// Close ends the server at once. The data stay.
func (s *Server) Close() { s.process.Kill() }

// serves says whether the server answers.
func (s *Server) serves() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint()+health, nil)
	if err != nil {
		return err
	}
	// It keeps no connection, so that none is left when a server has ended.
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
