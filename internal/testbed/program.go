package testbed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Program finds a server program that no system package provides and that "make tools" builds: the
// path in the environment variable, else .bin/NAME in the working directory or a parent, else NAME
// in PATH. The error says how to get it.
func Program(name, variable string) (string, error) {
	if path := os.Getenv(variable); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			return "", fmt.Errorf("the path of %s in %s: %w", name, variable, err)
		}
		return path, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	if path, ok := above(dir, filepath.Join(".bin", name)); ok {
		return path, nil
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("%s is not installed: run \"make tools\" in the repository, or name the program in %s", name, variable)
}

// above looks for a program in dir and in its parents.
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
