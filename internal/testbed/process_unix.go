//go:build unix

package testbed

import (
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// isolate gives the server its own process group, so that all its processes can be ended together,
// and sets the user it runs as.
func isolate(cmd *exec.Cmd, name string) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if name == "" {
		return nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return fmt.Errorf("look up the user that it runs as: %w", err)
	}
	uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
	if errUID != nil || errGID != nil {
		return fmt.Errorf("user %s has ids %s and %s", name, u.Uid, u.Gid)
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return nil
}

func terminate(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

func kill(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

func freeze(cmd *exec.Cmd) error { return Suspend(-cmd.Process.Pid) }

// Suspend stops a process, or all processes of the group -pid, and returns when all their threads
// have stopped.
func Suspend(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStopped(pid)
}

func thaw(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT) }
