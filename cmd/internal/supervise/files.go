//go:build unix

package supervise

import (
	"os"

	"golang.org/x/sys/unix"
)

// A closer opens files, and closes those that are not kept. After the first error it opens no more.
type closer struct {
	open   []*os.File
	copies []int
	err    error
}

func (c *closer) pipe() (r, w *os.File) {
	if c.err == nil {
		if r, w, c.err = os.Pipe(); c.err == nil {
			c.open = append(c.open, r, w)
		}
	}
	return r, w
}

func (c *closer) null() (f *os.File) {
	if c.err == nil {
		if f, c.err = os.OpenFile(os.DevNull, os.O_RDWR, 0); c.err == nil {
			c.open = append(c.open, f)
		}
	}
	return f
}

// inherited lets the next program that is started inherit f, with the same descriptor number. Other
// descriptors that the user's shell opened for the command keep their numbers.
func (c *closer) inherited(f *os.File) int {
	fd := int(f.Fd())
	if c.err == nil {
		_, c.err = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
	}
	return fd
}

// copied returns an inherited copy of a descriptor.
func (c *closer) copied(of int) int {
	if c.err != nil {
		return -1
	}
	fd, err := unix.FcntlInt(uintptr(of), unix.F_DUPFD, 3)
	if c.err = err; err == nil {
		c.copies = append(c.copies, fd)
	}
	return fd
}

func (c *closer) keep(files ...*os.File) {
	for i, f := range c.open {
		for _, kept := range files {
			if f == kept {
				c.open[i] = nil
			}
		}
	}
}

func (c *closer) close() {
	for _, f := range c.open {
		if f != nil {
			f.Close()
		}
	}
	for _, fd := range c.copies {
		unix.Close(fd)
	}
}
