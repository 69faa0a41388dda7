//go:build !linux

package demo

import (
	"context"
	"errors"
)

var errNeedsLinux = errors.New("this step needs Linux")

func frozenHolder(context.Context, *stage) error { return errNeedsLinux }
