package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/replica"
	"github.com/lockstep-dev/lockstep/server/storage"
)

// A disk makes the log durable on a goroutine of its own. Whatever is queued during one sync is
// written as the next batch. The replica bounds how much is in flight.
type disk struct {
	store *storage.Store
	inbox *inbox
	busy  *diskClock
	wake  chan struct{} // holds one
	// synced is called with the duration of each write, unless nil.
	synced func(time.Duration)
	forget chan struct{} // holds one: a purge is due, and everything that it covers was compacted

	mu struct {
		sync.Mutex
		appends   []*raftpb.Message
		compactTo uint64
		forget    bool
	}
}

func newDisk(s *storage.Store, b *inbox, busy *diskClock, synced func(time.Duration)) *disk {
	return &disk{store: s, inbox: b, busy: busy, synced: synced, wake: make(chan struct{}, 1), forget: make(chan struct{}, 1)}
}

// queue hands over MsgStorageAppend messages, how much of the log may be forgotten, and whether the
// log's files are to be purged after that.
func (d *disk) queue(appends []*raftpb.Message, compactTo uint64, forget bool) {
	if len(appends) == 0 && compactTo == 0 && !forget {
		return
	}
	d.mu.Lock()
	d.mu.appends = append(d.mu.appends, appends...)
	d.mu.compactTo = max(d.mu.compactTo, compactTo)
	d.mu.forget = d.mu.forget || forget
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run writes until ctx is done or a write fails, which is final.
func (d *disk) run(ctx context.Context) error {
	var spare []*raftpb.Message
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
		}
		d.mu.Lock()
		appends, compactTo, forget := d.mu.appends, d.mu.compactTo, d.mu.forget
		d.mu.appends, d.mu.compactTo, d.mu.forget = spare[:0], 0, false
		d.mu.Unlock()

		d.busy.start()
		if len(appends) > 0 {
			if err := d.store.Append(group, appends); err != nil {
				return err
			}
			if d.synced != nil {
				d.synced(d.busy.busy())
			}
			d.inbox.push(replica.Persisted{Appends: len(appends)})
		}
		if compactTo > 0 {
			if err := d.store.Compact(group, compactTo); err != nil {
				return err
			}
		}
		d.busy.stop()
		if forget {
			select {
			case d.forget <- struct{}{}:
			default:
			}
		}
		clear(appends)
		spare = appends
	}
}

// A diskClock measures how long the write in progress has taken so far.
type diskClock struct {
	began time.Time    // of the node
	since atomic.Int64 // nanoseconds after began; 0: no write is in progress
}

func (c *diskClock) start() { c.since.Store(max(1, int64(time.Since(c.began)))) }
func (c *diskClock) stop()  { c.since.Store(0) }

func (c *diskClock) busy() time.Duration {
	since := c.since.Load()
	if since == 0 {
		return 0
	}
	return time.Since(c.began) - time.Duration(since)
}

// runPurges purges the files when that is due, concurrently with the writes. If a purge fails, it
// is tried again after the next start.
func (d *disk) runPurges(ctx context.Context, log *slog.Logger) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.forget:
		}
		began := time.Now()
		if err := errors.Join(d.store.Purge(ctx), ctx.Err()); err != nil {
			log.Warn("secrets from before the feature level was raised may still be in the log files", "err", err)
			continue
		}
		if err := d.store.RememberPurge(false); err != nil {
			return err
		}
		log.Info("no file contains secrets from before the feature level was raised", "took", time.Since(began))
	}
}
