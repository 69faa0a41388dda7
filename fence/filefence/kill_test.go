//go:build unix

package filefence

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// The test binary is the writer too, when these are set.
const (
	writerPath  = "FILEFENCE_TEST_PATH"
	writerToken = "FILEFENCE_TEST_TOKEN"
)

// killsVariable is how often TestKilledWriters kills, 40 times unless set.
const killsVariable = "LOCKSTEP_KILLS"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerPath); path != "" {
		if err := writeForEver(path, os.Getenv(writerToken)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// A version is the n-th write of a token.
type version struct {
	token lockstep.Token
	n     int
}

func (v version) before(w version) bool {
	return v.token < w.token || v.token == w.token && v.n < w.n
}

// content is long enough to be written in parts, of a length that varies, with a sum.
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

// writeForEver writes version after version, deletes now and then, and says so after each.
func writeForEver(path, token string) error {
	n, err := strconv.ParseUint(token, 10, 64)
	if err != nil {
		return err
	}
	f, err := Open(path, Config{})
	if err != nil {
		return err
	}
	g := grant(lockstep.Token(n))
	if err := f.Enter(context.Background(), g); err != nil {
		return err
	}
	for v := (version{g.Token, 1}); ; v.n++ {
		if err := f.Write(context.Background(), g, v.content()); err != nil {
			return err
		}
		fmt.Println(v.n)
	}
}

func kills(t *testing.T) int {
	text := os.Getenv(killsVariable)
	if text == "" {
		return 40
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, want how often to kill", killsVariable, text)
	}
	return n
}

// TestKilledWriters kills a process at random moments of its writes. The file is then one whole
// version, not older than the last that was confirmed, and its token has not gone down. All the
// while a plain reader sees whole versions, in order.
func TestKilledWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	stop := watchPlainly(t, path)
	defer stop()
	cutOff := 0
	for i := range kills(t) {
		token := lockstep.Token(i + 1)
		confirmed := killWriter(t, path, token)
		cutOff += afterKill(t, path, version{token, confirmed})
	}
	t.Logf("%d of %d kills were in the middle of a write", cutOff, kills(t))
	if cutOff == 0 {
		t.Error("no kill was in the middle of a write, so that nothing was tested")
	}
}

// killWriter starts a writer and kills it at a random moment after its first write. It
// returns how many writes were confirmed.
func killWriter(t *testing.T, path string, token lockstep.Token) (confirmed int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerPath+"="+path, fmt.Sprintf("%s=%d", writerToken, token))
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer stuck.Stop()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if confirmed++; confirmed == 1 {
			time.AfterFunc(rand.N(20*time.Millisecond), func() { cmd.Process.Kill() })
		}
	}
	cmd.Wait()
	if confirmed == 0 || complaint.Len() > 0 {
		t.Fatalf("writer with token %d: %d writes, %s", token, confirmed, complaint.String())
	}
	return confirmed
}

// afterKill checks the file and returns 1 when the writer died in the middle of a write.
func afterKill(t *testing.T, path string, confirmed version) (cutOff int) {
	t.Helper()
	entries, err := filepath.Glob(path + ".fence.[n0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, path)
	data, err := f.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range [][]byte{plain, data} {
		if v, err := whole(content); err != nil || v.before(confirmed) {
			t.Errorf("version %v after %v was confirmed (%v)", v, confirmed, err)
		}
	}
	mark, err := f.Mark(t.Context())
	if err != nil || mark.Token != confirmed.token {
		t.Errorf("mark %+v, %v after token %d", mark, err, confirmed.token)
	}
	if err := f.Enter(t.Context(), grant(confirmed.token-1)); !fence.Refused(err) {
		t.Errorf("an older token: %v, want a refusal", err)
	}
	return min(len(entries), 1)
}

// watchPlainly reads the file as any program does until stop is called.
func watchPlainly(t *testing.T, path string) (stop func()) {
	var done atomic.Bool
	var reader sync.WaitGroup
	reader.Go(func() {
		var last version
		for ; !done.Load(); time.Sleep(time.Millisecond) {
			content, err := os.ReadFile(path)
			if errors.Is(err, os.ErrNotExist) && last.n == 0 {
				continue
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

// TestAKilledProcessLetsGoOfTheFile kills one that holds the file lock.
func TestAKilledProcessLetsGoOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	for token := range lockstep.Token(5) {
		killWriter(t, path, 2*token+1)
		if err := open(t, path).Write(t.Context(), grant(2*token+2), version{2*token + 2, 1}.content()); err != nil {
			t.Fatal(err)
		}
	}
}
