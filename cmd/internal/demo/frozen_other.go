//go:build !linux

package demo

import (
	"context"
	"errors"
)

func frozenHolder(context.Context, *stage) error {
	return errors.New("freezing a holder with all its processes needs Linux")
}
