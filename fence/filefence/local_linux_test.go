package filefence

import (
	"errors"
	"os"
	"testing"

	"github.com/lockstep-dev/lockstep"
)

func TestRemoteFileSystemsAreRefused(t *testing.T) {
	for magic, name := range remote {
		if err := checkKind("/srv", magic); !errors.Is(err, lockstep.ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", name, err)
		}
	}
	const ext4 = 0xEF53
	if err := checkKind("/srv", ext4); err != nil {
		t.Errorf("ext4: %v", err)
	}
	if err := checkLocal(t.TempDir()); err != nil {
		t.Errorf("the directory of this test: %v", err)
	}
	if err := checkLocal("/no/such/directory"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}
