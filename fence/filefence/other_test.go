//go:build !unix

package filefence

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/lockstep-dev/lockstep"
)

func TestWithoutFlockNothingIsGuarded(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "report"), Config{}); !errors.Is(err, lockstep.ErrUnsupported) {
		t.Errorf("err = %v, want ErrUnsupported", err)
	}
	if _, err := OpenDir(t.TempDir(), Config{}); !errors.Is(err, lockstep.ErrUnsupported) {
		t.Errorf("err = %v, want ErrUnsupported", err)
	}
}
