package etcdserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// programVariable is the environment variable that names the program.
const programVariable = "LOCKSTEP_ETCD"

// Program finds the etcd program: what LOCKSTEP_ETCD names, else .bin/etcd in the working directory or one above it, where scripts/install-etcd
// puts it, else etcd on PATH. The error says how to get it. The tests are written for version 3.7.
func Program() (string, error) {
	if path := os.Getenv(programVariable); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			return "", fmt.Errorf("the etcd of %s: %w", programVariable, err)
		}
		return path, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find etcd: %w", err)
	}
	if path, ok := above(dir, filepath.Join(".bin", "etcd")); ok {
		return path, nil
	}
	if path, err := exec.LookPath("etcd"); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("etcd is not installed: run \"make tools\" in the repository, or name the program in %s", programVariable)
}

// above looks for a program in dir and in the directories above it.
func above(dir, program string) (path string, ok bool) {
	for {
		path := filepath.Join(dir, program)
		if _, err := exec.LookPath(path); err == nil {
			return path, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}
