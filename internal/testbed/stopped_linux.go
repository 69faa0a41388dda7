package testbed

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// awaitStopped waits until no thread of a process, or of the process group -pid, is running. One
// thread of each process handles SIGSTOP and stops the others: while that thread waits for a
// processor, the others keep running.
func awaitStopped(pid int) error {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if !running(pid) {
			return nil
		}
	}
	return fmt.Errorf("process %d is still running 10 s after SIGSTOP", pid)
}

// running reports whether a thread is neither stopped nor dead.
func running(pid int) bool {
	processes := "/proc/[0-9]*"
	if pid > 0 {
		processes = fmt.Sprintf("/proc/%d", pid)
	}
	threads, _ := filepath.Glob(processes + "/task/*/stat") // the pattern is well-formed
	for _, thread := range threads {
		state, group := stateOf(thread)
		if state != "" && !strings.Contains("TtZX", state) && (pid > 0 || group == strconv.Itoa(-pid)) {
			return true
		}
	}
	return false
}

// stateOf returns the state and the process group in a stat file of /proc, or "" if its process has
// ended.
func stateOf(path string) (state, group string) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", ""
	}
	_, rest, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" ")) // the name may have spaces
	fields := strings.Fields(string(rest))                                        // state, parent, group
	if len(fields) < 3 {
		return "", ""
	}
	return fields[0], fields[2]
}
