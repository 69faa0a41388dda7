package backup_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep/server/backup"
	"github.com/lockstep-dev/lockstep/server/command"
)

// The file is intact, and its content is from a newer build: that is not damage.
func TestAStateOfANewerBuildIsNotCalledDamaged(t *testing.T) {
	chunk := binary.BigEndian.AppendUint32([]byte{'H'}, 1)
	chunk = append(chunk, 99) // the format of the state
	state := append([]byte("lockstep machine\n"), chunk...)
	state = binary.BigEndian.AppendUint32(state, crc32.Checksum(chunk, crc32.MakeTable(crc32.Castagnoli)))
	var file bytes.Buffer
	if err := backup.Write(&file, backup.Header{ClusterID: "c", Node: "n1", Version: "v9", Index: 5, Term: 1, Voters: []uint64{1}}, bytes.NewReader(state)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := backup.Open(path)
	if !errors.Is(err, backup.ErrNewer) || errors.Is(err, backup.ErrDamaged) || !strings.Contains(err.Error(), command.ErrNewer.Error()) {
		t.Errorf("err = %v", err)
	}
}
