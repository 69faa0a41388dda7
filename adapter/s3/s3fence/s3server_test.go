package s3fence_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lockstep-dev/lockstep/internal/testbed/s3server"
)

// hangingUp keeps no connections, so that none is left at the end.
func hangingUp(o *s3.Options) {
	o.HTTPClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

func TestAServerKeepsItsObjectsThroughARestart(t *testing.T) {
	s, err := s3server.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cli := clientOf(s.Endpoint(), hangingUp)
	put, err := cli.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String(s3server.Bucket), Key: aws.String("a/b"), Body: strings.NewReader("hello")})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	got, err := cli.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String(s3server.Bucket), Key: aws.String("a/b")})
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	content, err := io.ReadAll(got.Body)
	if err != nil || string(content) != "hello" || aws.ToString(got.ETag) != aws.ToString(put.ETag) {
		t.Errorf("content %q, ETag %s, %v; put gave ETag %s", content, aws.ToString(got.ETag), err, aws.ToString(put.ETag))
	}
}

func TestAMissingProgramIsNamed(t *testing.T) {
	t.Setenv("LOCKSTEP_VERSITYGW", "/nowhere/versitygw")
	if _, err := s3server.Start(t.TempDir()); err == nil || !strings.Contains(err.Error(), "LOCKSTEP_VERSITYGW") {
		t.Errorf("start without the program: %v", err)
	}
	t.Setenv("LOCKSTEP_VERSITYGW", "")
	t.Setenv("PATH", "")
	t.Chdir(t.TempDir())
	if _, err := s3server.Start(t.TempDir()); err == nil || !strings.Contains(err.Error(), "make tools") {
		t.Errorf("start without the program: %v", err)
	}
}
