//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package filefence

import (
	"errors"
	"os"
)

const flockWorks = false

func flock(*os.File) (locked bool, err error) { return false, errors.ErrUnsupported }
