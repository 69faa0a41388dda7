package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
)

// handleVariable holds the handle unless --handle-file is given. No flag takes a handle: every user
// of a machine can read the command lines of the others.
const handleVariable = "LOCKSTEP_HANDLE"

// maxHandleBytes bounds the size of a handle file.
const maxHandleBytes = 64 << 10

// goneAdvice is what to do about a lock that was lost between two commands of a script.
const goneAdvice = "others may already hold it: stop all work that depends on it"

// A grantReport describes a lock held by this command or for a later one.
type grantReport struct {
	Lock        string `json:"lock"`
	Token       uint64 `json:"token,omitempty"` // none for permits
	Session     string `json:"session"`
	TTLMS       int64  `json:"ttl_ms,omitempty"` // of a newly granted lock
	RemainingMS int64  `json:"remaining_ms"`     // until the lease ends, unless it is renewed
	Handle      string `json:"handle,omitempty"` // a secret
}

func reportGrant(locker lockstep.Locker, lock lockstep.Lock) grantReport {
	return grantReport{
		Lock: lock.Name(), Token: uint64(lock.Token()), Session: owner(lock),
		TTLMS: locker.Capabilities().TTL.Milliseconds(), RemainingMS: lock.Remaining().Milliseconds(),
	}
}

// owner returns the public id of the session, if the backend has one.
func owner(lock lockstep.Lock) string {
	if o, ok := lock.(interface{ Owner() string }); ok {
		return o.Owner()
	}
	return ""
}

// handleFlags say where commands find the handle.
type handleFlags struct {
	target targetFlags
	out    output
	file   string
	advice string // what to do if the lock was lost; empty: goneAdvice
}

func (f *handleFlags) register(flags *pflag.FlagSet) {
	f.target.register(flags)
	f.out.register(flags)
	flags.StringVar(&f.file, "handle-file", "", "`file` with the handle (-: standard input); by default the handle is taken from "+handleVariable)
}

// withAttached attaches the lock of the handle and calls use.
func (f *handleFlags) withAttached(ctx context.Context, a *App, use func(context.Context, lockstep.Detacher, lockstep.Lock) error) error {
	target, err := f.target.target()
	if err != nil {
		return err
	}
	handle, err := f.read(a)
	if err != nil {
		return err
	}
	target.TTL = lockstep.DefaultTTL // unused: no claim is made, and the TTL of the lock is in its handle
	locker, err := a.OpenLocker(target)
	if err != nil {
		return err
	}
	defer locker.Close(ctx)
	if l, ok := locker.(interface{ Outage() *client.OutageError }); ok && a.narrates(target.Verbose) {
		defer a.sayOutages(f.target.verb, l.Outage)()
	}
	d, err := detacher(locker)
	if err != nil {
		return err
	}
	err = takeTurns(
		func() (lockstep.Lock, error) { return d.Attach(ctx, handle) },
		func(lock lockstep.Lock) error { return use(ctx, d, lock) })
	if errors.Is(err, lockstep.ErrLost) {
		return fmt.Errorf("%w: %s", err, cmp.Or(f.advice, goneAdvice))
	}
	return err
}

// maxTurns bounds how often a command starts over because another one with the same handle
// interfered.
const maxTurns = 8

// A goneMeanwhile is the error of a use that lost the lock to another command with the same handle
// when the lock itself was gone afterwards. The lock was released, by that command or by the use,
// whose reply then got lost.
type goneMeanwhile struct{ error }

// Unwrap returns the error of the use.
func (e goneMeanwhile) Unwrap() error { return e.error }

// takeTurns attaches a lock and uses it, and tries again when use lost it to another command with
// the same handle. The lock itself is lost only if attach says so; the error of use then says more,
// unless the service knows why the lock was lost.
func takeTurns(attach func() (lockstep.Lock, error), use func(lockstep.Lock) error) (err error) {
	for range maxTurns {
		lock, failed := attach()
		switch {
		case failed != nil && err != nil && recordMissing(failed):
			return goneMeanwhile{err}
		case failed != nil:
			return failed
		}
		if err = use(lock); !recordMissing(err) {
			return err
		}
	}
	return err
}

func recordMissing(err error) bool {
	loss, ok := errors.AsType[*lockstep.LossError](err)
	return ok && loss.Reason == lockstep.RecordMissing
}

func detacher(locker lockstep.Locker) (lockstep.Detacher, error) {
	d, ok := locker.(lockstep.Detacher)
	if !ok {
		return nil, fmt.Errorf(`%w: backend %s cannot keep a lock between two commands: use "lockstep run" or "lockstep hold"`,
			lockstep.ErrUnsupported, locker.Capabilities().Backend)
	}
	return d, nil
}

func (f *handleFlags) read(a *App) (lockstep.Handle, error) {
	text := a.Getenv(handleVariable)
	if f.file != "" {
		var err error
		if text, err = readHandle(f.file); err != nil {
			return "", usageError("--handle-file: %w", err)
		}
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", usageError(`no handle: set %s to what "lockstep acquire" printed, or give its file with --handle-file`, handleVariable)
	}
	return lockstep.Handle(text), nil
}

func readHandle(path string) (string, error) {
	if path == "-" {
		text, err := io.ReadAll(io.LimitReader(os.Stdin, maxHandleBytes))
		return string(text), err
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if mode := info.Mode(); mode.IsRegular() && mode.Perm()&0o077 != 0 {
		return "", &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("mode is %v, and a handle is a secret: chmod 600", mode)}
	}
	text, err := io.ReadAll(io.LimitReader(file, maxHandleBytes))
	return string(text), err
}

// A handleFile is a file that will contain a whole handle or not exist at all. It is created before
// the lock is requested: a lock whose handle cannot be stored would stay held until its lease ends.
type handleFile struct {
	path    string
	temp    *os.File
	force   bool // replace an existing file
	written bool
}

// newHandleFile rejects an existing file unless force is set: nobody can release a lock whose
// handle is lost.
func newHandleFile(path string, force bool) (*handleFile, error) {
	if _, err := os.Lstat(path); err == nil && !force {
		return nil, usageError(`--handle-file: %s exists, and its handle may hold a lock: run "lockstep release --handle-file %s" first, or use --force`,
			printable(path), printable(path))
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".handle-") // its mode is 0600
	if err != nil {
		return nil, usageError("--handle-file: %w", err)
	}
	return &handleFile{path: path, temp: temp, force: force}, nil
}

func (f *handleFile) write(h lockstep.Handle) error {
	_, err := fmt.Fprintln(f.temp, string(h))
	if err = errors.Join(err, f.temp.Close()); err != nil {
		return err
	}
	err = f.publish()
	f.written = err == nil
	return err
}

// publish moves the file to its final name.
func (f *handleFile) publish() error {
	if f.force {
		return os.Rename(f.temp.Name(), f.path)
	}
	err := os.Link(f.temp.Name(), f.path) // fails if the file was created meanwhile
	if err != nil && !errors.Is(err, fs.ErrExist) {
		err = os.Rename(f.temp.Name(), f.path) // the file system has no hard links
	}
	return err
}

// withdraw removes the file if it was written: its handle is useless. A nil file is a no-op.
func (f *handleFile) withdraw() {
	if f != nil && f.written {
		os.Remove(f.path)
	}
}

// drop removes the temporary file. A nil file is a no-op.
func (f *handleFile) drop() {
	if f != nil {
		f.temp.Close()
		os.Remove(f.temp.Name())
	}
}
