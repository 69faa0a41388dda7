package fencetest_test

import (
	"path/filepath"
	"testing"

	"github.com/lockstep-dev/lockstep/fence/filefence"
	"github.com/lockstep-dev/lockstep/fencetest"
)

// The test of a guard. A file that is opened twice stands for two processes.
func ExampleRun() {
	// In a file next to the guard: func TestConformance(t *testing.T) { ... }
	_ = func(t *testing.T) {
		dir := t.TempDir()
		fencetest.Run(t, fencetest.Guard{
			Open: func(t *testing.T, resource string) fencetest.Store {
				file, err := filefence.Open(filepath.Join(dir, filepath.Base(filepath.Dir(resource))), filefence.Config{})
				if err != nil {
					t.Fatal(err)
				}
				return file
			},
		})
	}
	// Output:
}
