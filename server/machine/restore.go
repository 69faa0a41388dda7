package machine

import "io"

// Restore reads a snapshot.
func Restore(r io.Reader) (*Machine, error) { panic("unfinished") }
