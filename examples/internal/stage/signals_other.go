//go:build !unix

package stage

import "errors"

// Suspend stops a process without its knowledge.
func Suspend(int) error { return errors.ErrUnsupported }

// Resume lets a suspended process go on.
func Resume(int) error { return errors.ErrUnsupported }
