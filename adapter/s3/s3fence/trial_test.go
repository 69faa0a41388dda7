package s3fence_test

import (
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/s3/s3fence"
	"github.com/lockstep-dev/lockstep/internal/testbed/s3server"
)

func TestAStoreThatDoesNotKeepConditionsIsRefused(t *testing.T) {
	s := startServer(t)
	for _, tt := range []struct {
		name   string
		change func(*http.Request)
		says   string
	}{
		{"ignores If-None-Match", dropping("If-None-Match"), "accepts a put with If-None-Match: * on an object"},
		{"ignores If-Match", dropping("If-Match"), "accepts a put with If-Match: an ETag without an object"},
		{"ignores both", dropping("If-None-Match", "If-Match"), "accepts a put with If-Match"},
		{"ignores If-Match once there is an object", afterTheFirst(dropping("If-Match")), "accepts a put with If-Match: another ETag"},
		{"looks first and writes then", lookingFirst(t, s), "puts at once"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cli, _ := dial(t, startClone(t, s, tt.change))
			_, err := s3fence.Open(t.Context(), cli, s3server.Bucket, s3fence.Config{})
			if !errors.Is(err, lockstep.ErrUnsupported) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("open: %v, want ErrUnsupported that says %q", err, tt.says)
			}
		})
	}
	t.Run("keeps them", func(t *testing.T) {
		cli, _ := dial(t, startClone(t, s, func(*http.Request) {}))
		_, err := s3fence.Open(t.Context(), cli, s3server.Bucket, s3fence.Config{})
		must(t, err)
		left, err := cli.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(s3server.Bucket)})
		must(t, err)
		if len(left.Contents) > 0 {
			t.Errorf("the trials have left %d objects", len(left.Contents))
		}
	})
}

// afterTheFirst does not touch the first put.
func afterTheFirst(change func(*http.Request)) func(*http.Request) {
	var puts atomic.Int64
	return func(r *http.Request) {
		if r.Method == http.MethodPut && puts.Add(1) > 1 {
			change(r)
		}
	}
}

func TestAStoreThatDoesNotAnswerIsNotTakenForABadOne(t *testing.T) {
	s := startServer(t)
	cli, _ := dial(t, s.Endpoint())
	if _, err := s3fence.Open(t.Context(), cli, "no-such-bucket", s3fence.Config{}); !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("no bucket: %v, want ErrUnavailable", err)
	}
	s.Kill()
	if _, err := s3fence.Open(t.Context(), cli, s3server.Bucket, s3fence.Config{}); !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("no server: %v, want ErrUnavailable", err)
	}
}

// once disables retries.
func once(o *s3.Options) { o.Retryer = aws.NopRetryer{} }

// TestOfManyPutsWithTheSameConditionOneWins is what the guard needs from a store, and what the
// tests' server provides.
func TestOfManyPutsWithTheSameConditionOneWins(t *testing.T) {
	const rounds, writers = 40, 24
	cli, _ := dial(t, startServer(t).Endpoint())
	for round := range rounds {
		key := fmt.Sprintf("race/%d", round/2)
		var etag *string
		if round%2 == 1 {
			present, err := cli.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String(s3server.Bucket), Key: &key})
			must(t, err)
			etag = present.ETag
		}
		var won atomic.Int64
		var group sync.WaitGroup
		for i := range writers {
			in := &s3.PutObjectInput{Bucket: aws.String(s3server.Bucket), Key: &key, Body: strings.NewReader(fmt.Sprint(round, i)), IfMatch: etag}
			if etag == nil {
				in.IfNoneMatch = aws.String("*")
			}
			group.Go(func() {
				if _, err := cli.PutObject(t.Context(), in, once); err == nil {
					won.Add(1)
				} else if !strings.Contains(err.Error(), "PreconditionFailed") {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if won.Load() != 1 {
			t.Errorf("round %d: %d of %d puts won, want one", round, won.Load(), writers)
		}
	}
}

// TestAnETagIsNeverLaterThanItsContent is the other thing that the guard needs from a store: a
// decision based on older content must not be stored under a later ETag. The server sometimes
// returns the ETag of the previous version, which is harmless.
func TestAnETagIsNeverLaterThanItsContent(t *testing.T) {
	const versions, readers = 300, 4
	cli, _ := dial(t, startServer(t).Endpoint())
	r := &resource{cli: cli}
	content := func(n int) string { return strings.Repeat(fmt.Sprintf("%04d", n), 1+n%50) }
	number := map[string]int{} // of the version with the ETag
	for n := range versions {
		number[fmt.Sprintf(`"%x"`, md5.Sum([]byte(content(n))))] = n
	}
	r.put(t, "moving/x", content(0))
	var done atomic.Bool
	var reads, behind atomic.Int64
	var group sync.WaitGroup
	for range readers {
		group.Go(func() {
			for !done.Load() {
				answer, err := cli.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String(s3server.Bucket), Key: aws.String("moving/x")})
				if err != nil {
					t.Error(err)
					return
				}
				text, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if len(text) < 4 {
					t.Errorf("read %q, %v", text, err)
					return
				}
				n, errNumber := strconv.Atoi(string(text[:4]))
				of, known := number[aws.ToString(answer.ETag)]
				if err := errors.Join(err, errNumber); err != nil || string(text) != content(n) || !known || of > n {
					t.Errorf("content of version %d with the ETag %s of version %d, %v", n, aws.ToString(answer.ETag), of, err)
					return
				}
				reads.Add(1)
				if of < n {
					behind.Add(1)
				}
			}
		})
	}
	for n := range versions {
		r.put(t, "moving/x", content(n))
	}
	done.Store(true)
	group.Wait()
	t.Logf("%d of %d reads gave the ETag of an earlier version", behind.Load(), reads.Load())
}
