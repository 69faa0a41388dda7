package storage

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// spareDescriptors are kept open for nothing but to be given up when the log has to begin a file and no descriptor
	// is left: a file, its directory, and the same for what is written beside it.
	spareDescriptors = 8
	// descriptorRetry is how often an opening that waits for a descriptor is tried again.
	descriptorRetry = 50 * time.Millisecond
	// starvedFor is how long after its last wait for a descriptor a store still counts as starved: the write that
	// waited has to be finished.
	starvedFor = 5 * time.Second
	// starvedLogEvery lies between two log lines about it.
	starvedLogEvery = 10 * time.Second
)

// A patient file system waits for a file descriptor where the process, or the machine, has none left. Nothing is wrong with the
// disk then, and nothing has been written: a node that ended would lose its leases for a shortage that passes.
type patient struct {
	vfs.FS
	log     *slog.Logger
	waited  func()       // is told of each opening that has to wait
	began   time.Time    // of the store
	waiting atomic.Int64 // openings that wait now
	last    atomic.Int64 // nanoseconds after began at which one waited last; 0: never
	open    atomic.Bool  // the directory is open; before that a shortage is an error
	hurried chan struct{}
	hurry   sync.Once

	mu struct {
		sync.Mutex
		spare []io.Closer
		told  time.Time
	}
}

func newPatient(inner vfs.FS, waited func(), log *slog.Logger) *patient {
	p := &patient{FS: inner, log: log, waited: waited, began: time.Now(), hurried: make(chan struct{})}
	p.restock()
	return p
}

// starved reports whether something waits for a descriptor, or did just now.
func (p *patient) starved() bool {
	last := p.last.Load()
	return p.waiting.Load() > 0 || last != 0 && time.Since(p.began)-time.Duration(last) < starvedFor
}

// giveUp ends all waiting, now and from now on.
func (p *patient) giveUp() { p.hurry.Do(func() { close(p.hurried) }) }

// close gives the spare descriptors back.
func (p *patient) close() {
	p.giveUp()
	for p.spend() {
	}
}

// outOfDescriptors reports whether this process, or the machine, has no file descriptor left.
func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// hold opens something, first with a spare descriptor where none is left, then when one comes back.
func (p *patient) hold(open func() error) error {
	err := open()
	for outOfDescriptors(err) && p.spend() {
		err = open()
	}
	if outOfDescriptors(err) && p.open.Load() {
		err = p.wait(err, open)
	}
	if err == nil {
		p.restock()
	}
	return err
}

func (p *patient) wait(err error, open func() error) error {
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	p.waited()
	p.tell(err)
	began := time.Now()
	tick := time.NewTicker(descriptorRetry)
	defer tick.Stop()
	for outOfDescriptors(err) {
		select {
		case <-p.hurried:
			return err
		case <-tick.C:
		}
		err = open()
		p.last.Store(int64(time.Since(p.began)))
	}
	if err == nil {
		p.log.Info("a file descriptor came back", "waited", time.Since(began).Round(time.Millisecond))
	}
	return err
}

// tell logs that something waits, now and then.
func (p *patient) tell(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.mu.told) >= starvedLogEvery {
		p.mu.told = now
		p.log.Error("no file descriptor is left: waiting for one; raise the limit (ulimit -n, LimitNOFILE) or end what holds them", "err", err)
	}
}

// spend gives a spare descriptor up.
func (p *patient) spend() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.mu.spare)
	if n == 0 {
		return false
	}
	_ = p.mu.spare[n-1].Close() // nothing was written to it
	p.mu.spare = p.mu.spare[:n-1]
	return true
}

// restock takes spare descriptors, as many as are missing and can be had.
func (p *patient) restock() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.mu.spare) < spareDescriptors {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		p.mu.spare = append(p.mu.spare, f)
	}
}

func (p *patient) file(open func() (vfs.File, error)) (f vfs.File, err error) {
	err = p.hold(func() error { f, err = open(); return err })
	return f, err
}

// Create is [vfs.FS.Create], with patience; so are the others.
func (p *patient) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return p.file(func() (vfs.File, error) { return p.FS.Create(name, category) })
}

// Open opens a file for reading.
func (p *patient) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return p.file(func() (vfs.File, error) { return p.FS.Open(name, opts...) })
}

// OpenReadWrite opens a file for reading and writing.
func (p *patient) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return p.file(func() (vfs.File, error) { return p.FS.OpenReadWrite(name, category, opts...) })
}

// OpenDir opens a directory for syncing.
func (p *patient) OpenDir(name string) (vfs.File, error) {
	return p.file(func() (vfs.File, error) { return p.FS.OpenDir(name) })
}

// ReuseForWrite makes the file newname, of oldname where that works. A try that failed may have renamed it already, so
// the next one makes a new file, which the contract allows.
func (p *patient) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.FS.ReuseForWrite(oldname, newname, category)
	if !outOfDescriptors(err) {
		return f, err
	}
	_ = p.FS.Remove(oldname) // the rename may have done it
	return p.Create(newname, category)
}

// Lock locks a file.
func (p *patient) Lock(name string) (c io.Closer, err error) {
	err = p.hold(func() error { c, err = p.FS.Lock(name); return err })
	return c, err
}

// List lists a directory.
func (p *patient) List(dir string) (names []string, err error) {
	err = p.hold(func() error { names, err = p.FS.List(dir); return err })
	return names, err
}

// Unwrap gives the file system within.
func (p *patient) Unwrap() vfs.FS { return p.FS }
