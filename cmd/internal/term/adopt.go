//go:build unix

package term

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Adopt makes this process the one that takes over what descends from it and lost its
// parent (on Linux), and reaps every child that ends, from now on until the program ends: as process
// 1 of a container it gets the orphans of strangers too. It is for a program
// that starts no other process than by [StartChild], whose end the watcher tells: any
// other child's status would be lost.
func Adopt() error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	go func() {
		for {
			for reapOne() {
			}
			<-ended
		}
	}()
	return becomeSubreaper()
}

// reapOne reports whether it has reaped a child.
func reapOne() bool {
	pid, err := unix.Wait4(-1, nil, unix.WNOHANG|waitAll, nil)
	return pid > 0 || err == unix.EINTR
}
