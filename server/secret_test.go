//go:build unix

package server

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestWhoMayReadTheFileOfTheSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(strings.Repeat("x", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, good := range map[os.FileMode]bool{
		0o600: true, 0o400: true, 0o440: true, 0o640: true, // the file's group is this process's
		0o644: false, 0o444: false, 0o604: false, 0o660: false, 0o602: false, 0o650: false,
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, _, err := readSecrets(path); (err == nil) != good {
			t.Errorf("mode %v: %v", mode, err)
		} else if err != nil && !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("mode %v: %v does not say what to do", mode, err)
		}
	}
	if !ownGroup(0, true) || ownGroup(1<<30, false) || ownGroup(1<<30, true) {
		t.Error("a group that this process is not in may read the secret, or root's may not")
	}
}

func TestTheFileOfTheSecretIsReadAgainWhenItHasChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		next := path + ".next"
		if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(next, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
	}
	a, b := strings.Repeat("a", 32), strings.Repeat("b", 32)
	f := secretFile{path: path, log: slog.New(slog.DiscardHandler)}
	current := func() [][]byte { // a second later
		f.mu.looked = time.Time{}
		return f.current()
	}
	for _, step := range []struct {
		text string
		mode os.FileMode
		want string
	}{
		{a, 0o600, a}, {a + "\n" + b, 0o600, a + b}, {"short", 0o600, a + b}, {b, 0o644, a + b}, {b, 0o600, b},
	} {
		write(step.text, step.mode)
		got := ""
		for _, s := range current() {
			got += string(s)
		}
		if got != step.want {
			t.Errorf("after %q with mode %v: %q, want %q", step.text, step.mode, got, step.want)
		}
	}
	if err := os.WriteFile(path, []byte(a), 0o600); err != nil { // in place, with the same size
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got := current(); len(got) != 1 || string(got[0]) != a {
		t.Errorf("written in place: %q", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := current(); len(got) != 1 || string(got[0]) != a {
		t.Errorf("without a file: %q", got)
	}
}

func TestTheFileOfTheSecretIsLookedAtOnceASecond(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	f := secretFile{path: path, log: slog.New(slog.DiscardHandler)}
	for _, secret := range []string{strings.Repeat("a", 32), strings.Repeat("b", 40)} {
		if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := f.current(); len(got) != 1 || got[0][0] != 'a' {
			t.Errorf("the secrets are %q, want those of the first look", got)
		}
	}
	f.mu.looked = f.mu.looked.Add(-secretEvery)
	if got := f.current(); len(got) != 1 || got[0][0] != 'b' {
		t.Errorf("a second later the secrets are %q", got)
	}
}
