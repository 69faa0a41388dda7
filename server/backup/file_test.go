package backup

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
)

func state(m *machine.Machine) *bytes.Buffer {
	c := m.StartCapture()
	var b bytes.Buffer
	for {
		chunk, last := c.Next()
		b.Write(chunk)
		if last {
			return &b
		}
	}
}

func sample(t *testing.T) []byte {
	t.Helper()
	m := machine.New()
	out := m.Apply(7, 1, &command.Entry{Commands: []command.Command{
		command.SetTokenFloor{Floor: 9}, command.OpenSession{TTL: 5, ClientNumbered: true},
	}})
	m.Apply(8, 1, &command.Entry{Commands: []command.Command{
		command.Acquire{Session: out.Results[1].Session, Seq: 1, Spec: command.Spec{Names: []string{"a"}}},
	}})
	var b bytes.Buffer
	h := Header{ClusterID: "c", Node: "n1", Index: 8, Term: 1, Voters: []uint64{1, 1 << 63}, TakenAt: 1_800_000_000_000}
	if err := Write(&b, h, state(m)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func open(t *testing.T, content []byte) (*File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return Open(path)
}

func TestABackupComesBackAsItWas(t *testing.T) {
	b, err := open(t, sample(t))
	if err != nil {
		t.Fatal(err)
	}
	if b.Node != "n1" || b.Voters[1] != 1<<63 || b.Machine.Counts().NextToken != 10 || b.Machine.Counts().Holders != 1 {
		t.Errorf("%+v with %+v", b.Header, b.Machine.Counts())
	}
}

func TestEveryFlippedBitEveryCutAndEveryByteMoreIsRefused(t *testing.T) {
	good := sample(t)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		if _, err := read(bytes.NewReader(bad), int64(len(bad))); !errors.Is(err, ErrDamaged) {
			t.Fatalf("bit flipped in byte %d of %d: %v", i, len(good), err)
		}
		if _, err := read(bytes.NewReader(good[:i]), int64(i)); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut to %d of %d bytes: %v", i, len(good), err)
		}
	}
	if _, err := open(t, append(bytes.Clone(good), 0)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte more: %v", err)
	}
}

func TestForeignFilesLinksAndFoldersAreRefused(t *testing.T) {
	for _, content := range []string{"", "LSSNAP", "hello", magic} {
		if _, err := open(t, []byte(content)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%q: %v", content, err)
		}
	}
	dir := t.TempDir()
	if _, err := Open(dir); err == nil {
		t.Error("a folder was read")
	}
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(target, sample(t), 0o600), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(link); err == nil {
		t.Error("a symbolic link was followed")
	}
}
