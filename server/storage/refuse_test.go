package storage

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

func cfg(dir string) Config { return Config{Dir: dir, ClusterID: testCluster, NodeID: testNode} }

// ours returns a directory of the test's node.
func ours(t *testing.T) string {
	t.Helper()
	dir := t.TempDir() + "/data"
	s := started(t, vfs.Default, dir)
	write(t, s, 2, 2, 3)
	closeStore(t, s)
	return dir
}

// TestForeignDirectoriesAreRefused has what an operator may point a node to by mistake.
func TestForeignDirectoriesAreRefused(t *testing.T) {
	t.Run("a file", func(t *testing.T) {
		f := t.TempDir() + "/f"
		check(t, os.WriteFile(f, nil, 0o600))
		refusedAs(t, cfg(f), ErrAccess, "is a file")
	})
	t.Run("a directory of something else stays untouched", func(t *testing.T) {
		dir := t.TempDir()
		check(t, os.WriteFile(dir+"/thesis.tex", nil, 0o600))
		refusedAs(t, cfg(dir), ErrForeign, "thesis.tex", "empty")
		if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
			t.Errorf("now there: %v %v", names, err)
		}
	})
	t.Run("another cluster's", func(t *testing.T) {
		c := cfg(ours(t))
		c.ClusterID = "0123"
		refusedAs(t, c, ErrForeign, testCluster, "0123")
	})
	t.Run("another node's", func(t *testing.T) {
		c := cfg(ours(t))
		c.NodeID = 5
		refusedAs(t, c, ErrForeign, "1122334455667788", "0000000000000005")
	})
	t.Run("one below a file", func(t *testing.T) {
		f := t.TempDir() + "/f"
		check(t, os.WriteFile(f, nil, 0o600))
		refusedAs(t, cfg(f+"/data"), ErrAccess)
	})
}

func TestPartsOfAnotherDirectoryOrVersionAreRefused(t *testing.T) {
	t.Run("the log of another directory", func(t *testing.T) {
		a, b := ours(t), ours(t)
		check(t, os.RemoveAll(a+"/log"), os.Rename(b+"/log", a+"/log"))
		refusedAs(t, cfg(a), ErrForeign, "belongs to another directory")
	})
	t.Run("one write-ahead log of another directory", func(t *testing.T) {
		a, b := ours(t), ours(t)
		check(t, os.Rename(newestWAL(t, b), newestWAL(t, a)))
		refusedAs(t, cfg(a), ErrForeign)
	})
	t.Run("no IDENTITY", func(t *testing.T) {
		dir := ours(t)
		check(t, os.Remove(dir+"/IDENTITY"))
		refusedAs(t, cfg(dir), ErrDamaged, "IDENTITY")
	})
	t.Run("a newer format", func(t *testing.T) {
		dir := ours(t)
		check(t, os.WriteFile(dir+"/IDENTITY", []byte("lockstep data directory\nformat 99\nwhatever\n"), 0o600))
		refusedAs(t, cfg(dir), ErrNewer, "99")
	})
	t.Run("a newer format of the log", func(t *testing.T) {
		dir := ours(t)
		names, err := filepath.Glob(dir + "/log/marker.format-version.*")
		if err != nil || len(names) != 1 {
			t.Fatal(names, err)
		}
		check(t, os.Rename(names[0], dir+"/log/marker.format-version.000999.999"))
		refusedAs(t, cfg(dir), ErrNewer)
	})
	t.Run("an IDENTITY with a flipped bit", func(t *testing.T) {
		dir := ours(t)
		flip(t, dir+"/IDENTITY", 50)
		refusedAs(t, cfg(dir), ErrDamaged, "checksum")
	})
}

func check(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// flip changes one bit of a file.
func flip(t *testing.T, name string, offset int) {
	t.Helper()
	b, err := os.ReadFile(name)
	check(t, err)
	b[offset] ^= 4
	check(t, os.WriteFile(name, b, 0o600))
}

func newestWAL(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(dir + "/log/*.log")
	if err != nil || len(names) == 0 {
		t.Fatal("no log file", err)
	}
	slices.Sort(names)
	return names[len(names)-1]
}

func TestADirectoryThatCannotBeWrittenIsRefused(t *testing.T) {
	readOnly := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return &os.PathError{Op: "open", Path: op.Path, Err: os.ErrPermission}
		}
		return nil
	})
	refused(t, errorfs.Wrap(vfs.NewMem(), readOnly), "data", ErrAccess)
}

func TestASecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir() + "/data"
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LOCKSTEP_TEST_HOLD="+dir)
	stdin, err := cmd.StdinPipe()
	check(t, err)
	stdout, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	if _, err := io.ReadFull(stdout, make([]byte, 5)); err != nil { // "ready"
		t.Fatal(err)
	}
	for range 2 { // an attempt takes nothing from the next one's answer, nor from the holder
		refused(t, vfs.Default, dir, ErrLocked, fmt.Sprintf("another process, pid %d:", cmd.Process.Pid))
	}
	check(t, stdin.Close(), cmd.Wait())
	open(t, vfs.Default, dir)
}

// holdDirectory is the second process: it holds the directory until its input ends.
func holdDirectory(dir string) {
	s, err := Open(Config{Dir: dir, ClusterID: testCluster, NodeID: testNode})
	if err != nil {
		os.Stdout.WriteString(err.Error())
		os.Exit(1)
	}
	os.Stdout.WriteString("ready")
	io.Copy(io.Discard, os.Stdin)
	s.Close()
}

func TestOthersMayNotEnterOrAreWarnedOf(t *testing.T) {
	dir := t.TempDir() + "/data"
	check(t, os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777))
	var log records
	s, err := Open(Config{Dir: dir, ClusterID: testCluster, NodeID: testNode, Logger: log.logger()})
	check(t, err)
	closeStore(t, s)
	if !strings.Contains(log.String(), "0777") {
		t.Errorf("log: %s", log.String())
	}
}

// filled makes a directory with a log long enough to damage its middle.
func filled(t *testing.T) string {
	dir := t.TempDir() + "/data"
	s := started(t, vfs.Default, dir)
	for i := uint64(2); i <= 200; i++ {
		write(t, s, 2, i, i)
	}
	closeStore(t, s)
	return dir
}

func TestDamageInTheMiddleOfTheLogIsRefusedWithItsPlace(t *testing.T) {
	dir := filled(t)
	wal := newestWAL(t, dir)
	b, err := os.ReadFile(wal)
	check(t, err)
	for _, at := range []int{len(b) / 4, len(b) / 2, len(b) * 3 / 4} {
		t.Logf("flip %d of %d", at, len(b))
		flip(t, wal, at)
		refused(t, vfs.Default, dir, ErrDamaged, filepath.Base(wal), "offset", "new member")
		after, err := os.ReadFile(wal)
		check(t, err)
		flip(t, wal, at)
		if !bytes.Equal(after[:at], b[:at]) || len(after) != len(b) {
			t.Fatal("the refusal changed the log")
		}
	}
	s := open(t, vfs.Default, dir)
	if n := len(recovered(t, s).Entries); n != 199 {
		t.Errorf("%d entries after the damage was undone, want 199", n)
	}
}

func TestAWriteThatNeverReachedTheDiskIsFoundAtTheNextStart(t *testing.T) {
	dir := filled(t)
	wal := newestWAL(t, dir)
	b, err := os.ReadFile(wal)
	check(t, err)
	clear(b[len(b)/2 : len(b)/2+300])
	check(t, os.WriteFile(wal, b, 0o600))
	refused(t, vfs.Default, dir, ErrDamaged, "offset")
}

func TestATornLastRecordIsDroppedAndLogged(t *testing.T) {
	dir := filled(t)
	wal := newestWAL(t, dir)
	info, err := os.Stat(wal)
	check(t, err)
	check(t, os.Truncate(wal, info.Size()-60))

	var log records
	s, err := Open(Config{Dir: dir, ClusterID: testCluster, NodeID: testNode, Logger: log.logger()})
	check(t, err)
	defer closeStore(t, s)
	if n := len(recovered(t, s).Entries); n < 190 || n > 198 {
		t.Errorf("%d entries are left", n)
	}
	if !strings.Contains(log.String(), "incomplete last record") || !strings.Contains(log.String(), "bytes=") {
		t.Errorf("nothing was logged: %s", log.String())
	}
	if n := strings.Count(log.String(), "\n"); n > 2 {
		t.Errorf("Pebble is not quiet: %s", log.String())
	}
}

func TestAMissingLogFileIsRefused(t *testing.T) {
	for _, name := range []string{"the newest write-ahead log", "CURRENT", "the whole log", "WAL", "snapshots"} {
		t.Run(name, func(t *testing.T) {
			dir := filled(t)
			switch name {
			case "the newest write-ahead log":
				check(t, os.Remove(newestWAL(t, dir)))
			case "CURRENT":
				names, _ := filepath.Glob(dir + "/log/marker.manifest.*")
				for _, n := range names {
					check(t, os.Remove(n))
				}
			case "the whole log":
				check(t, os.RemoveAll(dir+"/log"))
			default:
				check(t, os.RemoveAll(filepath.Join(dir, name)))
			}
			refused(t, vfs.Default, dir, ErrDamaged)
		})
	}
}

func TestAnOlderWriteAheadLogUnderTheNewestNameIsRefused(t *testing.T) {
	dir := filled(t)
	wal := newestWAL(t, dir)
	old, err := os.ReadFile(wal)
	check(t, err)
	s := open(t, vfs.Default, dir) // starts a new write-ahead log
	recovered(t, s)
	write(t, s, 3, 201, 210)
	closeStore(t, s)
	check(t, os.WriteFile(newestWAL(t, dir), old, 0o600))
	refused(t, vfs.Default, dir, ErrDamaged)
}

// TestADirectoryOfANewerLevelKeepsOldProgramsOut: programs that know no feature levels read only
// the format.
func TestADirectoryOfANewerLevelKeepsOldProgramsOut(t *testing.T) {
	dir := t.TempDir()
	open := func() *Store {
		s, err := Open(Config{Dir: dir, ClusterID: "c", NodeID: 1, Origin: "o"})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	first := s.id
	if first.format != firstFormat {
		t.Fatalf("a new directory has format %d", first.format)
	}
	for range 2 {
		if err := s.BarBefore(); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, identityName))
		if err != nil || !strings.HasPrefix(string(text), "lockstep data directory\nformat 2\n") {
			t.Fatalf("%s, %v", text, err)
		}
		s = open()
		if s.id.first() != first || s.id.format != formatVersion {
			t.Errorf("identity %+v, was %+v", s.id, first)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
