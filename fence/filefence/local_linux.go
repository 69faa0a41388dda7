package filefence

import (
	"fmt"
	"syscall"

	"github.com/lockstep-dev/lockstep"
)

// remote lists the network file systems by their magic number in statfs(2).
var remote = map[uint32]string{
	0x6969:     "NFS",
	0x517B:     "SMB",
	0xFF534D42: "CIFS",
	0xFE534D42: "SMB 2",
	0x5346414F: "AFS",
	0x73757245: "Coda",
	0x01021997: "9P",
	0x00C36400: "Ceph",
	0x0BD00BD0: "Lustre",
	0x65735546: "FUSE",
}

// checkLocal refuses a directory on a file system that other machines can write to unnoticed.
func checkLocal(dir string) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return fmt.Errorf("find out the file system of %s: %w", dir, err)
	}
	return checkKind(dir, uint32(st.Type))
}

func checkKind(dir string, magic uint32) error {
	if name, known := remote[magic]; known {
		return fmt.Errorf("%w: %s is on %s, and only a local file system keeps the locks and renames of a guarded file in order",
			lockstep.ErrUnsupported, dir, name)
	}
	return nil
}
