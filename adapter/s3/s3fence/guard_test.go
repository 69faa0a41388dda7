package s3fence_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/s3/s3fence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed/s3server"
)

func TestWhatAStepSends(t *testing.T) {
	r := open(t, startServer(t), "x", s3fence.Config{})
	data := []byte("data")
	read := func() error { _, err := r.Read(t.Context()); return err }
	for _, tt := range []struct {
		name string
		do   func() error
		sent string
	}{
		{"the first entry", func() error { return r.Enter(t.Context(), grant(7)) }, "GET manifest PUT manifest"},
		{"entering again", func() error { return r.Enter(t.Context(), grant(7)) }, "GET manifest"},
		{"a write", func() error { return r.Write(t.Context(), grant(7), data) }, "GET manifest PUT data PUT manifest"},
		{"the second write", func() error { return r.Write(t.Context(), grant(7), data) }, "GET manifest PUT data PUT manifest"},
		{"the third write", func() error { return r.Write(t.Context(), grant(7), data) }, "GET manifest PUT data PUT manifest DELETE data"},
		{"a read", read, "GET manifest GET data"},
		{"a stale write", func() error { return r.Write(t.Context(), grant(6), data) }, "GET manifest"},
		{"a deletion", func() error { return r.Delete(t.Context(), grant(7)) }, "GET manifest PUT manifest DELETE data DELETE data"},
		{"a read of nothing", read, "GET manifest"},
	} {
		err := tt.do()
		if err != nil && !errors.Is(err, fence.ErrStale) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if sent := r.line.sent(); sent != tt.sent {
			t.Errorf("%s sent %q, want %q", tt.name, sent, tt.sent)
		}
	}
}

func TestTheManifestStaysWhenTheDataAreDeleted(t *testing.T) {
	r := open(t, startServer(t), "x", s3fence.Config{})
	for range 3 {
		must(t, r.Write(t.Context(), grant(7), []byte("x")))
	}
	must(t, r.Delete(t.Context(), grant(8)))
	if left := r.objects(t); len(left) > 0 {
		t.Errorf("the deletion has left %v", left)
	}
	mark, err := r.Mark(t.Context(), "x")
	if want := (fence.Mark{Backend: "etcd:test", Lock: "reports", Token: 8, Written: 8}); err != nil || mark != want {
		t.Errorf("mark %+v, %v, want %+v", mark, err, want)
	}
	if err := r.Write(t.Context(), grant(7), []byte("back")); !errors.Is(err, fence.ErrStale) {
		t.Errorf("an older holder: %v, want ErrStale", err)
	}
}

// TestNoTwoVersionsOfAManifestHaveTheSameBytes goes back and forth, so that marks and data repeat.
func TestNoTwoVersionsOfAManifestHaveTheSameBytes(t *testing.T) {
	r := open(t, startServer(t), "x", s3fence.Config{})
	seen := map[string]int{}
	look := func() {
		head, err := r.cli.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String(s3server.Bucket), Key: aws.String(r.ManifestKey("x"))})
		must(t, err)
		seen[*head.ETag]++
	}
	ours := fence.Mark{Backend: "etcd:test", Lock: "reports"}
	theirs := fence.Mark{Backend: "native:prod", Lock: "reports"}
	must(t, r.Reset(t.Context(), "x", fence.Mark{}, ours))
	for range 3 {
		must(t, r.Reset(t.Context(), "x", ours, theirs))
		look()
		must(t, r.Reset(t.Context(), "x", theirs, ours))
		look()
	}
	for range 3 {
		must(t, r.Delete(t.Context(), grant(1)))
		look()
	}
	if len(seen) != 9 {
		t.Errorf("9 versions had %d ETags", len(seen))
	}
}

func TestDataUploadedInPartsAreCommitted(t *testing.T) {
	r := open(t, startServer(t), "x", s3fence.Config{})
	must(t, r.Write(t.Context(), grant(6), []byte("old")))
	key := r.NewKey("x", grant(7))
	for name, err := range map[string]error{
		"not uploaded":   r.Commit(t.Context(), "x", grant(7), fence.Write, key),
		"another token":  r.Commit(t.Context(), "x", grant(8), fence.Write, key),
		"other resource": r.Commit(t.Context(), "y", grant(7), fence.Write, key),
		"no key of ours": r.Commit(t.Context(), "x", grant(7), fence.Write, "reports/today"),
		"no write":       r.Commit(t.Context(), "x", grant(7), fence.Enter, key),
	} {
		if !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	uploadInParts(t, r.cli, key, strings.Repeat("a", 5<<20), "b")
	must(t, r.Commit(t.Context(), "x", grant(7), fence.WriteOnce, key))
	data, err := r.Read(t.Context())
	if err != nil || len(data) != 5<<20+1 {
		t.Errorf("read %d bytes, %v", len(data), err)
	}
	if present, err := r.Key(t.Context(), "x"); err != nil || present != key {
		t.Errorf("key %s, %v, want %s", present, err, key)
	}
	if err := r.Commit(t.Context(), "x", grant(7), fence.WriteOnce, key); !errors.Is(err, fence.ErrAlready) {
		t.Errorf("again: %v, want ErrAlready", err)
	}
}

func uploadInParts(t *testing.T, cli *s3.Client, key string, parts ...string) {
	t.Helper()
	bucket := aws.String(s3server.Bucket)
	upload, err := cli.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: bucket, Key: &key})
	must(t, err)
	var done types.CompletedMultipartUpload
	for i, part := range parts {
		number := aws.Int32(int32(i + 1))
		answer, err := cli.UploadPart(t.Context(), &s3.UploadPartInput{Bucket: bucket, Key: &key, UploadId: upload.UploadId, PartNumber: number, Body: strings.NewReader(part)})
		must(t, err)
		done.Parts = append(done.Parts, types.CompletedPart{ETag: answer.ETag, PartNumber: number})
	}
	_, err = cli.CompleteMultipartUpload(t.Context(), &s3.CompleteMultipartUploadInput{Bucket: bucket, Key: &key, UploadId: upload.UploadId, MultipartUpload: &done})
	must(t, err)
}

// TestSweepRemovesWhatNobodyCanCommit leaves data of older tokens, of the current one and of a
// later one.
func TestSweepRemovesWhatNobodyCanCommit(t *testing.T) {
	r := open(t, startServer(t), "x", s3fence.Config{})
	must(t, r.Write(t.Context(), grant(5), []byte("before")))
	must(t, r.Write(t.Context(), grant(6), []byte("present")))
	var stay []string
	for token := range lockstep.Token(5) {
		key := r.NewKey("x", grant(5+token))
		r.put(t, key, "left behind")
		if token >= 2 {
			stay = append(stay, key)
		}
	}
	must(t, r.Enter(t.Context(), grant(7)))
	stay = append(stay, r.ManifestKey("x"))
	if n, err := r.Sweep(t.Context(), "x"); err != nil || n != 2 {
		t.Errorf("removed %d, %v, want the 2 of tokens 5 and 6", n, err)
	}
	left := r.objects(t)
	if len(left) != 5 || !slices.Contains(left, stay[0]) || !slices.Contains(left, stay[2]) {
		t.Errorf("left %v", left)
	}
	if data, err := r.Read(t.Context()); err != nil || string(data) != "present" {
		t.Errorf("data %q, %v", data, err)
	}
	must(t, r.Reset(t.Context(), "x", fence.Mark{Backend: "etcd:test", Lock: "reports", Token: 7, Written: 6}, fence.Mark{Backend: "native:prod", Lock: "reports"}))
	if n, err := r.Sweep(t.Context(), "x"); err != nil || n != 0 {
		t.Errorf("after a reset to token 0: removed %d, %v", n, err)
	}
	if n, err := r.Sweep(t.Context(), "nothing"); err != nil || n != 0 {
		t.Errorf("nothing: removed %d, %v", n, err)
	}
}

func TestManifestsThatCannotBeReadAdmitNobody(t *testing.T) {
	r := open(t, startServer(t), "x", s3fence.Config{})
	must(t, r.Write(t.Context(), grant(1), []byte("other")))
	good := readObject(t, r, r.ManifestKey("x"))
	for name, content := range map[string]string{
		"empty":            "",
		"garbage":          "garbage",
		"cut off":          good[:len(good)/2],
		"more behind it":   good + good,
		"another format":   strings.Replace(good, `"format":1`, `"format":2`, 1),
		"another member":   strings.Replace(good, `"nonce"`, `"once"`, 1),
		"no mark":          `{"format":1,"nonce":"x"}`,
		"a bad token":      strings.Replace(good, `"token":"1"`, `"token":"-1"`, 1),
		"no nonce":         `{"format":1,"mark":{"backend":"b","lock":"l","token":"1","written":"1"}}`,
		"of another":       strings.ReplaceAll(good, "fence/x/_data", "fence/y/_data"),
		"too large":        good + strings.Repeat(" ", 64<<10),
		"written too high": strings.Replace(good, `"written":"1"`, `"written":"2"`, 1),
	} {
		r.put(t, r.ManifestKey("x"), content)
		r.line.sent()
		for step, err := range map[string]error{
			"write":  r.Write(t.Context(), grant(9), []byte("x")),
			"reset":  r.Reset(t.Context(), "x", fence.Mark{}, fence.Mark{Backend: "b", Lock: "l"}),
			"sweep":  second(r.Sweep(t.Context(), "x")),
			"read":   second(r.Read(t.Context())),
			"delete": r.Delete(t.Context(), grant(9)),
		} {
			if err == nil || fence.Refused(err) || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s, %s: %v, want an error that is no verdict", name, step, err)
			}
		}
		if sent := r.line.sent(); strings.Contains(sent, "PUT") || strings.Contains(sent, "DELETE") {
			t.Errorf("%s: %s", name, sent)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func readObject(t *testing.T, r *resource, key string) string {
	t.Helper()
	answer, err := r.cli.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String(s3server.Bucket), Key: &key})
	must(t, err)
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	must(t, err)
	return string(content)
}

func TestLostDataAreNotTakenForNone(t *testing.T) {
	r := open(t, startServer(t), "x", s3fence.Config{})
	must(t, r.Write(t.Context(), grant(1), []byte("x")))
	_, err := r.cli.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: aws.String(s3server.Bucket), Key: aws.String(r.objects(t)[0])})
	must(t, err)
	if _, err := r.Read(t.Context()); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "lost") {
		t.Errorf("read: %v, want an error that says that data are lost", err)
	}
}

func TestTheFirstGrantBindsTheResource(t *testing.T) {
	s := startServer(t)
	locks := []string{"a", "a b", "b", "report", "reports", "reports/1"}
	errs := make([]error, len(locks))
	var wg sync.WaitGroup
	for i, lock := range locks {
		r := open(t, s, "x", s3fence.Config{})
		wg.Go(func() {
			errs[i] = r.Write(t.Context(), fence.Grant{Backend: "etcd:test", Lock: lock, Token: lockstep.Token(100 - i)}, []byte(lock))
		})
	}
	wg.Wait()
	r := open(t, s, "x", s3fence.Config{})
	value, err := r.Read(t.Context())
	must(t, err)
	for i, lock := range locks {
		if won := lock == string(value); won != (errs[i] == nil) || !won && !errors.Is(errs[i], fence.ErrForeign) {
			t.Errorf("lock %s: %v; the value is that of %s", lock, errs[i], value)
		}
	}
	if left := r.objects(t); len(left) != 1 {
		t.Errorf("who lost has left data: %v", left)
	}
}

func TestResetGivesTheResourceToAnotherLock(t *testing.T) {
	r := open(t, startServer(t), "x", s3fence.Config{})
	must(t, r.Write(t.Context(), grant(lockstep.MaxToken), []byte("old")))
	moved := fence.Grant{Backend: "native:prod", Lock: "reports", Token: 1}
	if err := r.Write(t.Context(), moved, nil); !errors.Is(err, fence.ErrForeign) {
		t.Fatalf("another backend: %v", err)
	}
	to := fence.Mark{Backend: moved.Backend, Lock: moved.Lock}
	if err := r.Reset(t.Context(), "x", fence.Mark{}, to); !errors.Is(err, fence.ErrMoved) {
		t.Errorf("reset of a mark that is not there: %v", err)
	}
	present, err := r.Mark(t.Context(), "x")
	must(t, err)
	r.line.meet(loseReply)
	must(t, r.Reset(t.Context(), "x", present, to))
	if data, err := r.Read(t.Context()); err != nil || string(data) != "old" {
		t.Errorf("data %q, %v, want those from before", data, err)
	}
	must(t, r.Write(t.Context(), moved, []byte("new")))
	if err := r.Write(t.Context(), grant(lockstep.MaxToken), nil); !errors.Is(err, fence.ErrForeign) {
		t.Errorf("the lock before: %v", err)
	}
	must(t, r.Reset(t.Context(), "fresh", fence.Mark{}, to)) // bound before its first grant
}

func TestErrorsSayWhatIsCertain(t *testing.T) {
	s := startServer(t)
	r := open(t, s, "x", s3fence.Config{})
	must(t, r.Write(t.Context(), grant(1), []byte("old")))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Write(ended, grant(1), nil); !errors.Is(err, context.Canceled) || errors.Is(err, lockstep.ErrUncertain) {
		t.Errorf("before the sending: %v, want Canceled", err)
	}
	stranger, err := s3fence.NewUntried(clientOf(s.Endpoint(), func(o *s3.Options) {
		o.HTTPClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "stranger", SecretAccessKey: "secret"}, nil
		})
	}), s3server.Bucket, s3fence.Config{})
	must(t, err)
	if err := stranger.Write(t.Context(), "x", grant(1), nil); !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("without permission: %v, want ErrUnavailable", err)
	}
	must(t, s.Freeze())
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := r.Write(short, grant(1), nil); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lockstep.ErrUncertain) {
		t.Errorf("a frozen server: %v, want DeadlineExceeded, as no put was sent", err)
	}
	must(t, s.Thaw())
	must(t, r.Write(t.Context(), grant(1), nil))
	s.Kill()
	if err := r.Write(t.Context(), grant(1), nil); !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("no server: %v, want ErrUnavailable, as nothing was sent", err)
	}
	if _, err := r.Read(t.Context()); !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("read without a server: %v, want ErrUnavailable", err)
	}
}

func TestBadInputIsRefusedBeforeAnythingIsSent(t *testing.T) {
	r := open(t, startServer(t), "x", s3fence.Config{})
	for name, err := range map[string]error{
		"backend": r.Guard.Write(t.Context(), "x", fence.Grant{Lock: "l", Token: 1}, nil),
		"mark":    second(r.Mark(t.Context(), "a//b")),
		"sweep":   second(r.Sweep(t.Context(), "../b")),
		"read":    second(r.Guard.Read(t.Context(), "/")),
		"reset":   r.Reset(t.Context(), "", fence.Mark{}, fence.Mark{}),
		"key":     second(r.Key(t.Context(), "_manifest")),
	} {
		if !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	for _, name := range []string{"", "/a", "a/", "a//b", ".", "a/../b", "_a", "a/_data", "a\nb", "a\x00", "\xff", strings.Repeat("x", 769)} {
		if err := r.Guard.Write(t.Context(), name, grant(1), nil); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("resource %q: %v, want ErrInvalid", name, err)
		}
	}
	if sent := r.line.sent(); sent != "" {
		t.Errorf("%s were sent", sent)
	}
	for _, prefix := range []string{"a/", "/a", "_a", strings.Repeat("x", 201)} {
		if _, err := s3fence.Open(t.Context(), r.cli, s3server.Bucket, s3fence.Config{Prefix: prefix}); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("prefix %q: %v, want ErrInvalid", prefix, err)
		}
	}
	for name, err := range map[string]error{
		"no client": second(s3fence.Open(t.Context(), nil, s3server.Bucket, s3fence.Config{})),
		"no bucket": second(s3fence.Open(t.Context(), r.cli, "", s3fence.Config{})),
	} {
		if !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

func TestNamesOfAllKindsAreKeys(t *testing.T) {
	s := startServer(t)
	long := strings.Repeat(strings.Repeat("x", 127)+"/", 5) + strings.Repeat("y", 128)
	for _, name := range []string{"a", "a/b", "a/b/c", "ä ö/%2F?x#y+z&=", "a:b@c,d;e$", `a"b'c<d>`, "日本", "...", "a_b", long} {
		r := open(t, s, name, s3fence.Config{Prefix: "team a/guards"})
		for token := range lockstep.Token(3) {
			must(t, r.Write(t.Context(), grant(token+1), []byte(name)))
		}
		if data, err := r.Read(t.Context()); err != nil || string(data) != name {
			t.Errorf("%s: read %q, %v", name, data, err)
		}
		r.put(t, r.NewKey(name, grant(1)), "left behind")
		if n, err := r.Sweep(t.Context(), name); err != nil || n != 1 {
			t.Errorf("%s: swept %d, %v, want 1", name, n, err)
		}
	}
}

func TestObserverIsToldOfVerdicts(t *testing.T) {
	var counts fence.Counts
	r := open(t, startServer(t), "x", s3fence.Config{Observer: &counts})
	for _, token := range []lockstep.Token{7, 8, 7, 0} {
		r.Write(t.Context(), grant(token), nil)
	}
	if got, want := counts.Tally(), (fence.Tally{Accepted: 2, Stale: 1, NoToken: 1}); got != want {
		t.Errorf("tally %+v, want %+v", got, want)
	}
}
