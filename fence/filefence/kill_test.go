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
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// When these are set, the test binary acts as the writer.
const (
	writerPath  = "FILEFENCE_TEST_PATH"
	writerToken = "FILEFENCE_TEST_TOKEN"
)

// killsVariable is how often TestKilledWriters kills, 40 times if not set.
const killsVariable = "LOCKSTEP_TEST_KILLS"

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

// content is long enough to be written in parts, and has a varying length and a checksum.
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

// TestKilledWriters kills a process at random moments of its writes. The file is then one complete
// version, not older than the last confirmed one, and its token has not decreased. Meanwhile a
// plain reader sees complete versions, in order.
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

// A writer is a process that runs writeForEver.
type writer struct {
	cmd       *exec.Cmd
	lines     *bufio.Scanner
	complaint strings.Builder
	stuck     *time.Timer
}

func startWriter(t *testing.T, path string, token lockstep.Token) *writer {
	t.Helper()
	w := &writer{cmd: exec.Command(os.Args[0])}
	w.cmd.Env = append(os.Environ(), writerPath+"="+path, fmt.Sprintf("%s=%d", writerToken, token))
	w.cmd.Stderr = &w.complaint
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.lines = bufio.NewScanner(out)
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.stuck = time.AfterFunc(time.Minute, w.kill)
	t.Cleanup(w.kill) // has no effect if it has already ended
	return w
}

func (w *writer) kill() { w.cmd.Process.Kill() }

func (w *writer) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// waitFor waits until n writes are confirmed.
func (w *writer) waitFor(t *testing.T, n int) {
	t.Helper()
	for range n {
		if !w.lines.Scan() {
			t.Fatalf("the writer ended: %s", w.end())
		}
	}
}

// end waits until the process has ended and returns its last words.
func (w *writer) end() string {
	for w.lines.Scan() {
	}
	w.cmd.Wait()
	w.stuck.Stop()
	return w.complaint.String()
}

// killWriter starts a writer and kills it at a random moment after its first write. It
// returns how many writes were confirmed.
func killWriter(t *testing.T, path string, token lockstep.Token) (confirmed int) {
	t.Helper()
	w := startWriter(t, path, token)
	w.waitFor(t, 1)
	time.AfterFunc(rand.N(20*time.Millisecond), w.kill)
	for confirmed = 1; w.lines.Scan(); confirmed++ {
	}
	if complaint := w.end(); complaint != "" {
		t.Fatalf("writer with token %d: %s", token, complaint)
	}
	return confirmed
}

// afterKill checks the file and returns 1 if the writer died in the middle of a write.
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

// TestAFrozenWriterIsRefusedWhenItWakes stops a process at random moments of its writes, lets the
// next holder take over, and wakes it. If it was stopped in the middle of a step, the next holder
// gets ErrBusy and retries; anything that the woken writer does then is refused.
func TestAFrozenWriterIsRefusedWhenItWakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	inStep := 0
	for round := range 12 {
		token := lockstep.Token(2*round + 1)
		w := startWriter(t, path, token)
		w.waitFor(t, 1)
		time.Sleep(rand.N(10 * time.Millisecond))
		if err := testbed.Suspend(w.cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		next := version{token + 1, 1}
		hasty, err := Open(path, Config{Wait: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		switch err := hasty.Write(t.Context(), grant(next.token), next.content()); {
		case errors.Is(err, fence.ErrBusy):
			inStep++
		case err != nil:
			t.Fatal(err)
		}
		w.signal(t, syscall.SIGCONT)
		if err := open(t, path).Write(t.Context(), grant(next.token), next.content()); err != nil {
			t.Fatal(err)
		}
		if complaint := w.end(); !strings.Contains(complaint, fence.ErrStale.Error()) {
			t.Errorf("the woken writer ended with %q, want a refusal", complaint)
		}
		if v, err := readPlainly(path); err != nil || v != next {
			t.Errorf("the file is of %v (%v), want %v", v, err, next)
		}
	}
	t.Logf("%d of 12 writers were stopped in the middle of a step", inStep)
}

func readPlainly(path string) (version, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return version{}, err
	}
	return whole(content)
}

// TestAKilledProcessLetsGoOfTheFile kills a process that holds the file lock.
func TestAKilledProcessLetsGoOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	for token := range lockstep.Token(5) {
		killWriter(t, path, 2*token+1)
		if err := open(t, path).Write(t.Context(), grant(2*token+2), version{2*token + 2, 1}.content()); err != nil {
			t.Fatal(err)
		}
	}
}
