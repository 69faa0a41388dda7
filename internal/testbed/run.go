package testbed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Run runs a program to completion, such as one that creates a server's files, and kills it when
// ctx is done. It uses Path, Args, Env, Dir and User of the command. The error shows the end of the
// program's output.
func Run(ctx context.Context, c Command) error {
	if _, err := exec.LookPath(c.Path); err != nil {
		return fmt.Errorf("the program %s is not installed: %w", c.Path, err)
	}
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.Env, cmd.Dir = append(os.Environ(), c.Env...), c.Dir
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := isolate(cmd, c.User); err != nil {
		return fmt.Errorf("run %s: %w", c.Path, err)
	}
	if err := cmd.Run(); err != nil {
		text := output.String()
		return fmt.Errorf("run %s: %w\n%s", c.Path, err, text[max(len(text)-logTail, 0):])
	}
	return nil
}
