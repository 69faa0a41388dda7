package filefence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"

	"github.com/lockstep-dev/lockstep/fence"
)

// A turn lets one step at a time through: within this process by a channel, so that goroutines do
// not poll, and across processes by a file lock.
type turn struct {
	path string
	wait time.Duration
	own  chan struct{} // room for one
}

func newTurn(path string, wait time.Duration) *turn {
	return &turn{path: path, wait: wait, own: make(chan struct{}, 1)}
}

// take waits for the turn, at most t.wait, and returns the function that ends it. The error is
// [fence.ErrBusy] or the cause of ctx.
func (t *turn) take(ctx context.Context) (leave func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.wait, fmt.Errorf("%w: others were at it for %v", fence.ErrBusy, t.wait))
	defer cancel()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case t.own <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	file, err := t.lockFile(ctx)
	if err != nil {
		<-t.own
		return nil, err
	}
	return func() {
		file.Close() // which unlocks it
		<-t.own
	}, nil
}

// The pauses between two attempts at a file that another process has locked. A step takes some
// milliseconds, most of them for syncs.
const (
	firstPause = time.Millisecond
	maxPause   = 16 * time.Millisecond
)

// lockFile opens and locks the lock file. It polls instead of blocking in the system call, which
// could not be interrupted.
func (t *turn) lockFile(ctx context.Context) (*os.File, error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		file, err := t.tryLock()
		if err != nil || file != nil {
			return file, err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// tryLock returns nil when another process has the lock.
func (t *turn) tryLock() (*os.File, error) {
	file, err := os.OpenFile(t.path, os.O_RDONLY|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	locked, err := flock(file)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", t.path, err)
	}
	if !locked || !t.stillNamed(file) {
		file.Close()
		return nil, nil
	}
	return file, nil
}

// stillNamed reports whether the locked file is the one that others would open. If it was removed
// in between, its lock excludes no one.
func (t *turn) stillNamed(file *os.File) bool {
	mine, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(t.path)
	return !errors.Is(err, fs.ErrNotExist) && err == nil && os.SameFile(mine, named)
}
