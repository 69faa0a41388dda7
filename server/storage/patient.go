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
	// spareDescriptors are kept open only to be released when the log has to begin a file and no
	// descriptor is left: for a file, its directory, and the same for what is written concurrently.
	spareDescriptors = 8
	// descriptorRetry is how often an open that waits for a descriptor is retried.
	descriptorRetry = 50 * time.Millisecond
	// starvedFor is how long after its last wait for a descriptor a store still counts as starved:
	// the write that waited has to be finished.
	starvedFor = 5 * time.Second
	// starvedLogEvery is the minimum time between two log lines about it.
	starvedLogEvery = 10 * time.Second
)

// A patient file system waits for a file descriptor when the process, or the machine, has none
// left. In that case the disk is fine, and nothing has been written: a node that exited would lose
// its leases because of a temporary shortage.
type patient struct {
	vfs.FS
	log     *slog.Logger
	waited  func()       // called for each open that has to wait
	began   time.Time    // of the store
	waiting atomic.Int64 // number of opens waiting now
	last    atomic.Int64 // nanoseconds after began at which one last waited; 0: never
	open    atomic.Bool  // the directory is open; before that, a shortage is an error
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

// starved reports whether something is waiting for a descriptor, or was until recently.
func (p *patient) starved() bool {
	last := p.last.Load()
	return p.waiting.Load() > 0 || last != 0 && time.Since(p.began)-time.Duration(last) < starvedFor
}

// giveUp ends all waiting, now and from now on.
func (p *patient) giveUp() { p.hurry.Do(func() { close(p.hurried) }) }

// close releases the spare descriptors.
func (p *patient) close() {
	p.giveUp()
	for p.spend() {
	}
}

// outOfDescriptors reports whether this process, or the machine, has no file descriptors left.
func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// hold opens something: if no descriptor is left, with a spare one, or else once one becomes free.
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
		p.log.Info("file descriptor available again", "waited", time.Since(began).Round(time.Millisecond))
	}
	return err
}

// tell logs, at intervals, that something waits.
func (p *patient) tell(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.mu.told) >= starvedLogEvery {
		p.mu.told = now
		p.log.Error("no file descriptor left: waiting for one; raise the limit (ulimit -n, LimitNOFILE) or close what holds them", "err", err)
	}
}

// spend releases a spare descriptor.
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

// restock opens spare descriptors, as many as are missing and available.
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

// Create is [vfs.FS.Create], but waits for a descriptor; so do the methods below.
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

// ReuseForWrite creates the file newname, from oldname if possible. A failed attempt may already
// have renamed it, so the next one creates a new file, which the contract allows.
func (p *patient) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.FS.ReuseForWrite(oldname, newname, category)
	if !outOfDescriptors(err) {
		return f, err
	}
	_ = p.FS.Remove(oldname) // the rename may have removed it
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

// Unwrap returns the wrapped file system.
func (p *patient) Unwrap() vfs.FS { return p.FS }
