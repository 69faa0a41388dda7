// Package clockjump moves the wall clock of one server process, for tests and demonstrations of
// what a clock jump does to a lock. The machine's own clock is not changed.
//
// It builds a small library with gcc (Debian: apt-get install gcc libc6-dev) that is preloaded into
// the server, and runs on Linux. The monotonic clocks of the server are not touched.
package clockjump

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

//go:embed preload/clockjump.c
var source []byte

// A Library is the library preloaded into servers.
type Library struct{ path string }

// Build builds the library in an existing directory, which must stay as long as servers are started
// with it.
func Build(dir string) (*Library, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("clockjump: runs on linux, not on %s", runtime.GOOS)
	}
	dir, err := filepath.Abs(dir) // servers change their working directory
	if err != nil {
		return nil, fmt.Errorf("clockjump: %w", err)
	}
	text, library := filepath.Join(dir, "clockjump.c"), filepath.Join(dir, "clockjump.so")
	if err := os.WriteFile(text, source, 0o600); err != nil {
		return nil, fmt.Errorf("clockjump: %w", err)
	}
	out, err := exec.Command("gcc", "-shared", "-fPIC", "-O2", "-Wall", "-o", library, text).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("clockjump: build with gcc (Debian: apt-get install gcc libc6-dev): %w\n%s", err, out)
	}
	return &Library{library}, nil
}

// A Clock is the wall clock of one server.
type Clock struct {
	library string
	file    string
}

// Clock creates the clock of a server, which starts out correct. Its state is a new file in dir, an
// existing directory used only by this server.
func (l *Library) Clock(dir string) (*Clock, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("clockjump: %w", err)
	}
	c := &Clock{library: l.path, file: filepath.Join(dir, "clockjump.offset")}
	return c, c.Set(0)
}

// Env returns the environment variables that the server needs.
func (c *Clock) Env() []string {
	return []string{"LD_PRELOAD=" + c.library, "LOCKSTEP_CLOCK_OFFSET=" + c.file}
}

// Set offsets the clock from the machine's by d from now on, in whole microseconds; a positive d is
// ahead. The server sees it at once.
func (c *Clock) Set(d time.Duration) error {
	file, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("clockjump: %w", err)
	}
	defer file.Close()
	offset := binary.NativeEndian.AppendUint64(nil, uint64(d.Microseconds()))
	if _, err := file.WriteAt(offset, 0); err != nil { // in place: the server has the file mapped
		return fmt.Errorf("clockjump: %w", err)
	}
	return nil
}
