//go:build !unix

package testbed

import (
	"errors"
	"os/exec"
)

func isolate(_ *exec.Cmd, name string) error {
	if name != "" {
		return errors.New("servers cannot run as another user on this system")
	}
	return nil
}

func terminate(cmd *exec.Cmd) { cmd.Process.Kill() }

func kill(cmd *exec.Cmd) { cmd.Process.Kill() }

func freeze(*exec.Cmd) error { return errors.ErrUnsupported }

func thaw(*exec.Cmd) error { return errors.ErrUnsupported }
