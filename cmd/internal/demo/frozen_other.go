//go:build !linux

package demo

import (
	"context"
	"errors"
)

var errNeedsLinux = errors.New("it needs Linux")

func frozenHolder(context.Context, *stage) error { return errNeedsLinux }

func suspend(int) error { return errNeedsLinux }

func resume(int) error { return errNeedsLinux }

// redlockSteps preload a library into servers and freeze processes.
var redlockSteps = []step{{"Redis servers with clocks of their own", func(context.Context, *stage) error { return errNeedsLinux }}}
