package testbed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Run runs a program to its end, such as one that makes the files of a server, and ends it when ctx
// is done. Of the command it takes Path, Args, Env, Dir and User. The error shows the end of what
// the program printed.
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
