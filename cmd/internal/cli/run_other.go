//go:build !unix

package cli

import (
	"context"
	"errors"
	"runtime"
)

// run, elect, hold and acquire need process groups and signals, which this system lacks.
func (a *App) run(context.Context, runPlan) error         { return elsewhere("run") }
func (a *App) elect(context.Context, electPlan) error     { return elsewhere("elect") }
func (a *App) hold(context.Context, holdPlan) error       { return elsewhere("hold") }
func (a *App) acquire(context.Context, acquirePlan) error { return elsewhere("acquire") }

func elsewhere(command string) error {
	return exitError{CodeNotRunnable, errors.New(command + " does not work on " + runtime.GOOS + ": use the Go library there")}
}
