//go:build linux || darwin

package server

import "syscall"

// space returns the bytes available to this process on the file system of a directory, and its
// size.
func space(dir string) (free, size uint64, ok bool) {
	var fs syscall.Statfs_t
	if dir == "" || syscall.Statfs(dir, &fs) != nil {
		return 0, 0, false
	}
	block := uint64(fs.Bsize)
	return fs.Bavail * block, fs.Blocks * block, true
}
