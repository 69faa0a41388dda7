package s3fence_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/s3/s3fence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed/s3server"
)

func startServer(t testing.TB) *s3server.Server {
	t.Helper()
	s, err := s3server.Start(t.TempDir())
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

// A mishap befalls one of the next requests.
type mishap int

const (
	loseReply     mishap = iota + 1 // the manifest is stored, but the reply is lost
	sendTwice                       // a proxy sends it again after it is stored, and passes on the second response
	dieBeforeData                   // the process dies before it sends the data
	dieBetween                      // the process dies when the data is stored but the manifest is not
	dieAfter                        // the process dies when the manifest is stored
)

var errLost = errors.New("the answer is lost")

// A line is the network of one client.
type line struct {
	next http.RoundTripper
	// answers, if set, answers a request instead of the server: with a status or an error. Zero and
	// nil: the server answers.
	answers func(request string) (status int, err error)
	// afterwards, if set, is called when a reply was lost.
	afterwards func()

	mu       sync.Mutex
	mishap   mishap
	dead     bool
	requests []string // METHOD and the kind of object
}

func (l *line) meet(m mishap) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mishap = m
}

// sent returns what was sent since the last call.
func (l *line) sent() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := strings.Join(l.requests, " ")
	l.requests = nil
	return all
}

func kindOf(path string) string {
	switch {
	case strings.HasSuffix(path, "/_manifest"):
		return "manifest"
	case strings.Contains(path, "/_data/"):
		return "data"
	default:
		return path
	}
}

// begin decides what happens to a request.
func (l *line) begin(r *http.Request) (met mishap, dead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return 0, true
	}
	kind := kindOf(r.URL.Path)
	l.requests = append(l.requests, r.Method+" "+kind)
	if r.Method != http.MethodPut || l.mishap == 0 || kind != "manifest" && l.mishap != dieBeforeData {
		return 0, false
	}
	met, l.mishap = l.mishap, 0
	l.dead = met == dieBeforeData || met == dieBetween || met == dieAfter
	return met, met == dieBeforeData || met == dieBetween
}

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	met, dead := l.begin(r)
	if dead {
		return nil, errLost
	}
	if l.answers != nil {
		if status, err := l.answers(r.Method + " " + kindOf(r.URL.Path)); status != 0 || err != nil {
			return bare(r, status), err
		}
	}
	if met == sendTwice {
		first := r.Clone(r.Context())
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		first.Body, r.Body = io.NopCloser(strings.NewReader(string(body))), io.NopCloser(strings.NewReader(string(body)))
		answer, err := l.next.RoundTrip(first)
		if err != nil {
			return nil, err
		}
		answer.Body.Close()
	}
	answer, err := l.next.RoundTrip(r)
	if err == nil && (met == loseReply || met == dieAfter) {
		answer.Body.Close()
		if l.afterwards != nil {
			l.afterwards()
		}
		return nil, errLost
	}
	return answer, err
}

// bare returns a response without a body.
func bare(r *http.Request, status int) *http.Response {
	if status == 0 {
		return nil
	}
	return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}
}

// quick lets the SDK retry as usual, but with shorter pauses.
func quick(o *s3.Options) {
	o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = 20 * time.Millisecond })
}

// dial creates a client with its own line to the server at the URL.
func dial(t testing.TB, url string) (*s3.Client, *line) {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	l := &line{next: transport}
	return clientOf(url, quick, func(o *s3.Options) { o.HTTPClient = &http.Client{Transport: l} }), l
}

// A resource is one process's view of a resource.
type resource struct {
	*s3fence.Guard
	name string
	line *line
	cli  *s3.Client
}

func open(t testing.TB, s *s3server.Server, name string, cfg s3fence.Config) *resource {
	t.Helper()
	cli, l := dial(t, s.Endpoint())
	g, err := s3fence.NewUntried(cli, s3server.Bucket, cfg)
	must(t, err)
	return &resource{Guard: g, name: name, line: l, cli: cli}
}

func (r *resource) Enter(ctx context.Context, g fence.Grant) error {
	return r.Guard.Enter(ctx, r.name, g)
}

func (r *resource) Read(ctx context.Context) ([]byte, error) { return r.Guard.Read(ctx, r.name) }

func (r *resource) Write(ctx context.Context, g fence.Grant, value []byte) error {
	return r.Guard.Write(ctx, r.name, g, value)
}

func (r *resource) WriteOnce(ctx context.Context, g fence.Grant, value []byte) error {
	return r.Guard.WriteOnce(ctx, r.name, g, value)
}

func (r *resource) Delete(ctx context.Context, g fence.Grant) error {
	return r.Guard.Delete(ctx, r.name, g)
}

// objects returns the keys of the resource's data.
func (r *resource) objects(t testing.TB) []string {
	t.Helper()
	page, err := r.cli.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{
		Bucket: aws.String(s3server.Bucket), Prefix: aws.String("lockstep-fence/" + r.name + "/_data/"),
	})
	must(t, err)
	var keys []string
	for _, o := range page.Contents {
		keys = append(keys, *o.Key)
	}
	return keys
}

// put writes an object, bypassing the guard.
func (r *resource) put(t testing.TB, key, content string) {
	t.Helper()
	_, err := r.cli.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String(s3server.Bucket), Key: &key, Body: strings.NewReader(content)})
	must(t, err)
}

func grant(token lockstep.Token) fence.Grant {
	return fence.Grant{Backend: "etcd:test", Lock: "reports", Token: token}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clientOf makes a client of the server at the URL, with the options of the SDK, which adjust may
// change.
func clientOf(url string, adjust ...func(*s3.Options)) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(url), UsePathStyle: true, Region: s3server.Region,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: s3server.AccessKey, SecretAccessKey: s3server.SecretKey}, nil
		}),
	}, adjust...)
}
