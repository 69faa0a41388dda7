//go:build unix

package supervise

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lower sets a soft limit of this process until the end of the test, and returns it.
func lower(t *testing.T, resource int, limit uint64) uint64 {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(resource, &old); err != nil {
		t.Fatal(err)
	}
	now := unix.Rlimit{Cur: min(old.Max, limit), Max: old.Max}
	if err := unix.Setrlimit(resource, &now); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Setrlimit(resource, &old) })
	return now.Cur
}

func TestAFailedStartNamesTheLimitsOfTheProcess(t *testing.T) {
	processes := lower(t, unix.RLIMIT_NPROC, 1<<20)
	space := lower(t, unix.RLIMIT_AS, 1<<50) // more than any process uses, even under the race detector
	want := fmt.Sprintf("; a watcher needs about 10 threads and 1 GiB of address space in addition to the command, ulimit -u is %d, ulimit -v is %d",
		processes, space/1024)

	feed, report := pipe(t), pipe(t)
	if _, err := report[1].Write(message{reportFailed, -int64(unix.EAGAIN)}.encode()); err != nil {
		t.Fatal(err)
	}
	failed := (&child{feed: feed[1]}).introduce(program{path: "/bin/true"}, Now()+time.Minute, report[0])
	report[1].Close()
	ended := (&child{feed: feed[1]}).introduce(program{path: "/bin/true"}, Now()+time.Minute, report[0])
	for what, err := range map[string]error{"start the command: " + unix.EAGAIN.Error(): failed, "start the watcher: it exited": ended} {
		if err == nil || !strings.HasPrefix(err.Error(), what) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got  %v\nwant %s ...%s", err, what, want)
		}
	}
}

// pipe returns the read end and the write end of a pipe.
func pipe(t *testing.T) [2]*os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return [2]*os.File{r, w}
}
