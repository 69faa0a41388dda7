//go:build unix

package supervise

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Adopt makes this process the parent of descendants that lose their own (on Linux), and reaps
// every child that ends, from now until the program ends. As process 1 of a container, it also gets
// the orphans of unrelated processes. It is for programs that start other processes only through
// this package, where the watcher reports how they end: the exit status of any other child would be
// lost.
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

// reapOne reports whether it reaped a child.
func reapOne() bool {
	pid, err := unix.Wait4(-1, nil, unix.WNOHANG|waitAll, nil)
	return pid > 0 || err == unix.EINTR
}
