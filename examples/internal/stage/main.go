package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// An interruption is the signal that ended an example.
type interruption struct{ syscall.Signal }

func (i interruption) Error() string { return "interrupted by " + i.String() }

// Main runs the program of this name until show returns or a signal comes, and returns its exit
// code: 0 if all of it held, 1 if not, and 128 and the number of the signal if there was one.
func Main(name string, show func(context.Context) error) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	go func() {
		select {
		case sig := <-signals:
			number, _ := sig.(syscall.Signal)
			cancel(interruption{number})
		case <-ctx.Done():
		}
	}()
	err := show(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	if i, ok := errors.AsType[interruption](context.Cause(ctx)); ok {
		return 128 + int(i.Signal)
	}
	return 1
}
