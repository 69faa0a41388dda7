package s3fence_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"go.uber.org/goleak"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/s3/s3fence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed/s3server"
)

// When these are set, the test binary acts as the writer.
const (
	writerURL   = "S3FENCE_TEST_URL"
	writerToken = "S3FENCE_TEST_TOKEN"
)

// killsVariable is how often TestKilledWriters kills, 12 times if not set.
const killsVariable = "LOCKSTEP_TEST_KILLS"

func TestMain(m *testing.M) {
	if url := os.Getenv(writerURL); url != "" {
		fmt.Fprintln(os.Stderr, writeForEver(url, os.Getenv(writerToken)))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// A version is the n-th write of a token.
type version struct {
	token lockstep.Token
	n     int
}

func (v version) before(w version) bool {
	return v.token < w.token || v.token == w.token && v.n < w.n
}

// content is long enough to be sent in parts, and has a varying length and a checksum.
func (v version) content() []byte {
	body := fmt.Sprintf("%d %d %s", v.token, v.n, strings.Repeat("data ", 2000+v.n*37%20000))
	return fmt.Appendf(nil, "%08x %s", crc32.ChecksumIEEE([]byte(body)), body)
}

func whole(content []byte) (version, error) {
	var v version
	if _, err := fmt.Sscanf(string(content), "%x %d %d ", new(uint32), &v.token, &v.n); err != nil || !bytes.Equal(v.content(), content) {
		return v, fmt.Errorf("%d bytes that are no whole version: %.60q", len(content), content)
	}
	return v, nil
}

// writeForEver writes version after version, and reports each one.
func writeForEver(url, token string) error {
	n, err := strconv.ParseUint(token, 10, 64)
	if err != nil {
		return err
	}
	ctx, g := context.Background(), grant(lockstep.Token(n))
	guard, err := s3fence.NewUntried(clientOf(url), s3server.Bucket, s3fence.Config{})
	if err != nil {
		return err
	}
	if err := guard.Enter(ctx, "report", g); err != nil {
		return err
	}
	for v := (version{g.Token, 1}); ; v.n++ {
		if err := guard.Write(ctx, "report", g, v.content()); err != nil {
			return err
		}
		fmt.Println(v.n)
	}
}

func kills(t *testing.T) int {
	text := os.Getenv(killsVariable)
	if text == "" {
		return 12
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, want how often to kill", killsVariable, text)
	}
	return n
}

// TestKilledWriters kills a process at random moments of its writes. The data is then one complete
// version, not older than the last confirmed one, and the token has not decreased. Meanwhile a
// reader that knows nothing about guards sees complete versions, in order. At the end a sweep
// removes what the dead writers left behind.
func TestKilledWriters(t *testing.T) {
	s := startServer(t)
	r := open(t, s, "report", s3fence.Config{})
	stop := watchPlainly(t, s)
	defer stop()
	cutOff := 0
	for i := range kills(t) {
		token := lockstep.Token(i + 1)
		cutOff += afterKill(t, r, version{token, killWriter(t, s, token)})
	}
	left := len(r.objects(t))
	must(t, r.Enter(t.Context(), grant(lockstep.Token(kills(t)+1))))
	swept, err := r.Sweep(t.Context(), "report")
	must(t, err)
	t.Logf("%d of %d kills were in the middle of a write; of %d objects of data %d were swept", cutOff, kills(t), left, swept)
	if cutOff == 0 {
		t.Error("no kill was in the middle of a write, so that nothing was tested")
	}
	if rest := r.objects(t); len(rest) != 2 {
		t.Errorf("%d objects are left, want the data and those before: %v", len(rest), rest)
	}
}

// killWriter starts a writer and kills it at a random moment after its first write. It returns how
// many writes were confirmed.
func killWriter(t *testing.T, s *s3server.Server, token lockstep.Token) (confirmed int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerURL+"="+s.Endpoint(), fmt.Sprintf("%s=%d", writerToken, token))
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	stuck := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer stuck.Stop()
	for lines := bufio.NewScanner(out); lines.Scan(); confirmed++ {
		if confirmed == 0 {
			time.AfterFunc(rand.N(40*time.Millisecond), func() { cmd.Process.Kill() })
		}
	}
	cmd.Wait() // it was killed
	if complaint.Len() > 0 || confirmed == 0 {
		t.Fatalf("writer with token %d after %d writes: %s", token, confirmed, complaint.String())
	}
	return confirmed
}

// afterKill checks the data and returns 1 if the writer died in the middle of a write.
func afterKill(t *testing.T, r *resource, confirmed version) (cutOff int) {
	t.Helper()
	data, err := r.Read(t.Context())
	must(t, err)
	v, err := whole(data)
	if err != nil || v.before(confirmed) {
		t.Errorf("version %v after %v was confirmed (%v)", v, confirmed, err)
	}
	mark, err := r.Mark(t.Context(), "report")
	if err != nil || mark.Token != confirmed.token || mark.Written != confirmed.token {
		t.Errorf("mark %+v, %v after token %d", mark, err, confirmed.token)
	}
	if err := r.Enter(t.Context(), grant(confirmed.token-1)); !fence.Refused(err) {
		t.Errorf("an older token: %v, want a refusal", err)
	}
	ofToken := 0
	for _, key := range r.objects(t) {
		if strings.Contains(key, fmt.Sprintf("/%016d-", uint64(confirmed.token))) {
			ofToken++
		}
	}
	if v != confirmed || ofToken > min(confirmed.n, 2) {
		return 1
	}
	return 0
}

// watchPlainly reads the data as any program does until stop is called.
func watchPlainly(t *testing.T, s *s3server.Server) (stop func()) {
	cli, _ := dial(t, s.Endpoint())
	var done atomic.Bool
	var reader sync.WaitGroup
	reader.Go(func() {
		var last version
		for reads := 0; ; reads++ {
			if done.Load() {
				t.Logf("a plain reader read %d times", reads)
				return
			}
			content, err := readPlainly(t.Context(), cli)
			if _, missing := errors.AsType[*types.NoSuchKey](err); missing {
				continue // before the first write, or the data was replaced twice in between
			}
			v, bad := whole(content)
			if err := errors.Join(err, bad); err != nil || v.before(last) {
				t.Errorf("a reader saw version %v after %v (%v)", v, last, err)
				return
			}
			last = v
		}
	})
	return func() {
		done.Store(true)
		reader.Wait()
	}
}

// errNoData means that the manifest names no data.
var errNoData = &types.NoSuchKey{}

// readPlainly reads the manifest and the data it refers to.
func readPlainly(ctx context.Context, cli *s3.Client) ([]byte, error) {
	text, err := getPlainly(ctx, cli, "lockstep-fence/report/_manifest")
	if err != nil {
		return nil, err
	}
	var manifest struct{ Data string }
	if err := json.Unmarshal(text, &manifest); err != nil {
		return nil, err
	}
	if manifest.Data == "" {
		return nil, errNoData
	}
	return getPlainly(ctx, cli, manifest.Data)
}

func getPlainly(ctx context.Context, cli *s3.Client, key string) ([]byte, error) {
	answer, err := cli.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(s3server.Bucket), Key: &key})
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(answer.Body)
}
