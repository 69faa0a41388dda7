package s3server

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// programVariable is the environment variable that names the program.
const programVariable = "LOCKSTEP_VERSITYGW"

// Program finds the versitygw program: what LOCKSTEP_VERSITYGW names, else .bin/versitygw in the working directory or one above it,
// where scripts/install-versitygw puts it, else versitygw on PATH. The error says how to get it. The tests are written for version 1.8.
func Program() (string, error) {
	if path := os.Getenv(programVariable); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			return "", fmt.Errorf("the versitygw of %s: %w", programVariable, err)
		}
		return path, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find versitygw: %w", err)
	}
	if path, ok := above(dir, filepath.Join(".bin", "versitygw")); ok {
		return path, nil
	}
	if path, err := exec.LookPath("versitygw"); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("versitygw is not installed: run \"make tools\" in the repository, or name the program in %s", programVariable)
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
