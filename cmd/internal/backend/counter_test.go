//go:build unix

package backend_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// addOne reads, adds and writes: without a lock, some of the increments would be lost.
const addOne = `n=$(cat f); echo $((n+1)) > f; echo $LOCKSTEP_TOKEN >> tokens`

// TestTheCounterIsExactOnEveryBackend has 20 shells increment a counter in a file, each run under a
// lock of the backend, while the backend suffers the faults that it claims to survive. COUNTER_RUNS
// is the number of runs; acceptance uses 200.
func TestTheCounterIsExactOnEveryBackend(t *testing.T) {
	runs := 40
	if text := os.Getenv("COUNTER_RUNS"); text != "" {
		var err error
		runs, err = strconv.Atoi(text)
		must(t, err)
	}
	binary := build(t)
	for _, each := range stages {
		t.Run(each.name, func(t *testing.T) {
			count(t, binary, each.start(t, binary), runs)
		})
	}
}

func count(t *testing.T, binary string, s stage, runs int) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("0\n"), 0o600))
	begin := time.Now()
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			for range runs / 20 {
				addUnderLock(t, binary, s.url, dir)
			}
		})
	}
	if s.disturb != nil {
		for len(numbers(t, dir, "tokens")) < runs/4 && time.Since(begin) < time.Minute {
			time.Sleep(10 * time.Millisecond)
		}
		s.disturb(t)
		t.Logf("disturbed until run %d", len(numbers(t, dir, "tokens")))
	}
	group.Wait()
	tokens := numbers(t, dir, "tokens")
	if f := numbers(t, dir, "f"); len(f) != 1 || f[0] != uint64(runs) || len(tokens) != runs {
		t.Errorf("the counter is %v after %d runs that wrote a token, want %d", f, len(tokens), runs)
	}
	for i := 1; i < len(tokens); i++ {
		if tokens[i] <= tokens[i-1] {
			t.Errorf("token %d was written after token %d", tokens[i], tokens[i-1])
		}
	}
	t.Logf("%d runs in %.1f s, tokens rise from %d", runs, time.Since(begin).Seconds(), tokens[0])
}

func addUnderLock(t *testing.T, binary, url, dir string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "run", "--connect-timeout", "30s", "counter/f", "--", "sh", "-c", addOne)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "LOCKSTEP_BACKEND="+url)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("run: %v: %s", err, out)
	}
}

// numbers reads a file with one number per line. A missing file has none.
func numbers(t *testing.T, dir, file string) (all []uint64) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for word := range strings.FieldsSeq(string(text)) {
		n, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			t.Fatal(fmt.Errorf("%s: %w", file, err))
		}
		all = append(all, n)
	}
	return all
}
