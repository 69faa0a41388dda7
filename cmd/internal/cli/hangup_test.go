//go:build linux

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// Log tools close the pipe that a server logs to, move its audit log away, and send HUP.
func TestLogToolsDoNotEndAServer(t *testing.T) {
	w := newWorld(t)
	free, err := testbed.Addresses(3)
	if err != nil {
		t.Fatal(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	audit := filepath.Join(w.dir, "audit.log")
	cmd := exec.Command(testBinary(t), "server", "--name", "n1", "--data-dir", filepath.Join(w.dir, "data"), "--log-level", "debug",
		"--listen", free[0], "--peer-listen", free[1], "--http-listen", free[2], "--initial-cluster", "n1="+free[1], "--audit-log", audit)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = w.dir, w.env, writer, writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { cmd.Process.Kill() })
	writer.Close()
	begun := func() bool {
		info, err := os.Stat(audit)
		return err == nil && info.Size() > 0
	}
	w.eventually("an audit log", begun)
	reader.Close()
	for _, to := range []string{".old", ".older"} {
		if err := os.Rename(audit, audit+to); err != nil {
			t.Fatal(err)
		}
		cmd.Process.Signal(syscall.SIGHUP)
		w.eventually("a new audit log after HUP", begun)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("after TERM: %v", err)
		}
	case <-time.After(patience):
		t.Error("TERM does not end it")
	}
}
