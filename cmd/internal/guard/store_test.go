package guard_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/cmd/internal/guard"
)

func TestEveryExampleIsAStore(t *testing.T) {
	for _, text := range append(guard.Examples(), "rediss://u:p%40@cache:6380/3", "etcds://u:p@a", "postgresql://u@h/app?sslmode=disable", "file:///a%20b", "s3://a.b-c?endpoint=http://127.0.0.1:9000") {
		if _, err := guard.Parse(text, ""); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestABadStoreIsRefusedWithoutItsPassword(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "must be a URL",
		"report":                  "must be a URL",
		"lockstep://a:1":          "unknown scheme",
		"redlock://a,b,c":         "unknown scheme",
		"file://relative/path":    "absolute path",
		"file://":                 "absolute path",
		"dir:///a?x=1":            "absolute path",
		"redis://u:secret@a/x":    "number of a database",
		"etcd://u:secret@a/path":  "takes no path",
		"postgres://u:secret@%zz": "psql",
		"s3://":                   "must be a bucket",
		"s3://u:secret@a":         "must be a bucket",
		"s3://a/key":              "must be a bucket",
		"s3://a?endpoint=b:9000":  "endpoint",
		"s3://a?x=1":              "does not support",
	} {
		_, err := guard.Parse(text, "")
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := guard.Parse("file:///a", "prefix"); err == nil {
		t.Error("a directory of files takes a prefix of keys")
	}
}

func TestABadNameOfTheMarksIsRefusedWhenTheStoreIsOpened(t *testing.T) {
	for text, marks := range map[string]string{"redis://127.0.0.1:1": "a{b}", "etcd://127.0.0.1:1": "a/", "postgres://127.0.0.1:1/app": "a b"} {
		store, err := guard.Parse(text, marks)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Open(t.Context()); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("%s with %q: %v, want ErrInvalid", text, marks, err)
		}
	}
}

func TestAGuardedFileIsBelowTheDirectoryOfTheStore(t *testing.T) {
	store, err := guard.Parse("file://"+filepath.ToSlash(t.TempDir()), "")
	if err != nil {
		t.Fatal(err)
	}
	marks, err := store.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer marks.Close()
	for _, resource := range []string{"", "../report", "/etc/passwd", "a/../../b"} {
		if _, err := marks.Mark(t.Context(), resource); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", resource, err)
		}
	}
}
