//go:build unix

package testbed_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep/internal/testbed"
)

func TestAProgramRunsToCompletion(t *testing.T) {
	dir := t.TempDir()
	c := testbed.Command{Path: "sh", Args: []string{"-c", `echo "$WORD" > made`}, Env: []string{"WORD=hello"}, Dir: dir}
	if err := testbed.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "made")); err != nil || string(text) != "hello\n" {
		t.Errorf("the program made %q, %v", text, err)
	}
}

func TestTheErrorOfAFailedProgramShowsItsOutput(t *testing.T) {
	err := testbed.Run(t.Context(), testbed.Command{Path: "sh", Args: []string{"-c", "echo out of luck >&2; exit 3"}})
	if err == nil || !strings.Contains(err.Error(), "out of luck") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("err = %v", err)
	}
	if err := testbed.Run(t.Context(), testbed.Command{Path: "lockstep-no-such-program"}); err == nil || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("err = %v, want an error that says what is missing", err)
	}
}
