//go:build !unix

package cli

import (
	"context"
	"errors"
	"runtime"
)

// run needs process groups and signals, which this system does not have.
func (a *App) run(context.Context, runPlan) error {
	return exitError{CodeNotRunnable, errors.New("run does not work on " + runtime.GOOS + ": use the Go library there")}
}
