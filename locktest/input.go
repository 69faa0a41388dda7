package locktest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockstep-dev/lockstep"
)

func inputChecks() []check {
	return []check{
		{name: "bad names are refused", run: checkBadNames},
		{name: "unusual names are names", run: checkGoodNames},
		{name: "bad options are refused", run: checkBadOptions},
		{name: "bad requests are refused before anything is sent", needs: []need{canCut}, run: checkRefusedLocally},
		{name: "what is not claimed is refused", run: checkUnsupported},
	}
}

var badNames = []string{
	"", strings.Repeat("x", lockstep.MaxNameBytes+1), "a\x00b", "a\nb", "a\x1b[31mb", "a\xffb",
	"/a", "a/", "a//b", "a/../b", ".", " a", "a/b ", "_sys/a", "a\u200bb", "a\u202eb",
}

// goodNames follow the first segment of the check.
var goodNames = []string{
	"--help", "*", "%s", "$(x)", "'; drop table locks; --", `a\b`, "{a}", "A", "a", "строка", "鍵", "a b", "😀", ":", "?x=1#y",
}

func checkBadNames(e *env) {
	l := e.open()
	for _, name := range badNames {
		lock, err := l.Acquire(e.limit(), name)
		if !errors.Is(err, lockstep.ErrInvalid) {
			e.Errorf("name %s: %v, want ErrInvalid", lockstep.Excerpt(name), err)
		}
		if err == nil {
			lock.Release(e.limit())
			continue
		}
		if text := err.Error(); len(text) > 1024 || strings.ContainsAny(text, "\x00\n\x1b\u202e") {
			e.Errorf("the error for name %s is no single short line", lockstep.Excerpt(name))
		}
	}
}

// checkGoodNames holds all of them at once: no two may be the same lock.
func checkGoodNames(e *env) {
	a, b := e.pair()
	var held []lockstep.Lock
	names := append([]string{strings.Repeat("x", lockstep.MaxNameBytes-len(e.name("")))}, goodNames...)
	for _, last := range names {
		lock, err := e.try(a, e.name(last))
		if err != nil {
			e.Errorf("name %s: %v", lockstep.Excerpt(last), err)
			continue
		}
		if lock.Name() != e.name(last) {
			e.Errorf("name %s became %s", lockstep.Excerpt(last), lockstep.Excerpt(lock.Name()))
		}
		held = append(held, lock)
	}
	for _, lock := range held {
		e.busy(b, lock.Name())
		e.release(lock)
	}
}

// badOptions break a rule on every backend.
func badOptions(e *env) map[string][]lockstep.AcquireOption {
	return map[string][]lockstep.AcquireOption{
		"negative wait":    {lockstep.WithWait(-1)},
		"endless wait":     {lockstep.WithWait(lockstep.MaxWait + 1)},
		"negative delay":   {lockstep.WithLockDelay(-1)},
		"long delay":       {lockstep.WithLockDelay(lockstep.MaxLockDelay + 1)},
		"short max hold":   {lockstep.WithMaxHold(time.Millisecond)},
		"negative hold":    {lockstep.WithMaxHold(-time.Second)},
		"large metadata":   {lockstep.WithMetadata(map[string]string{"k": strings.Repeat("x", lockstep.MaxMetadataBytes)})},
		"control metadata": {lockstep.WithMetadata(map[string]string{"k": "a\x1bb"})},
		"no permits":       {lockstep.WithPermits(0, 3)},
		"too many permits": {lockstep.WithPermits(4, 3)},
		"same name twice":  {lockstep.WithAlso(e.name("x"), e.name("x"))},
		"other namespace":  {lockstep.WithAlso("elsewhere/x")},
		"bad second name":  {lockstep.WithAlso(e.name("..") + "/x")},
	}
}

func checkBadOptions(e *env) {
	l := e.open()
	for what, opts := range badOptions(e) {
		lock, err := l.Acquire(e.limit(), e.name("a"), opts...)
		if !errors.Is(err, lockstep.ErrInvalid) {
			e.Errorf("%s: %v, want ErrInvalid", what, err)
		}
		if err == nil {
			lock.Release(e.limit())
		}
	}
	e.free(l, e.name("a"), e.soon())
}

// checkRefusedLocally makes requests while nothing can be sent: a backend that sent them would hang
// or report the backend as unavailable.
func checkRefusedLocally(e *env) {
	l := e.open()
	e.cut(l)
	ctx, cancel := context.WithTimeout(e.limit(), e.soon())
	defer cancel()
	if _, err := l.Acquire(ctx, "a//b"); !errors.Is(err, lockstep.ErrInvalid) {
		e.Errorf("bad name: %v, want ErrInvalid", err)
	}
	if _, err := l.Acquire(ctx, e.name("a"), lockstep.WithWait(-1)); !errors.Is(err, lockstep.ErrInvalid) {
		e.Errorf("bad option: %v, want ErrInvalid", err)
	}
	for what, opt := range e.notClaimed() {
		if _, err := l.Acquire(ctx, e.name("a"), opt); !errors.Is(err, lockstep.ErrUnsupported) {
			e.Errorf("%s: %v, want ErrUnsupported", what, err)
		}
	}
}

func (e *env) notClaimed() map[string]lockstep.AcquireOption {
	options := map[string]lockstep.AcquireOption{}
	if !e.caps.Shared {
		options["shared"] = lockstep.WithShared()
	}
	if !e.caps.Permits {
		options["permits"] = lockstep.WithPermits(1, 2)
	}
	if !e.caps.Multi {
		options["several names"] = lockstep.WithAlso(e.name("b"))
	}
	if !e.caps.LockDelay {
		options["lock delay"] = lockstep.WithLockDelay(time.Second)
	}
	return options
}

func checkUnsupported(e *env) {
	l := e.open()
	for what, opt := range e.notClaimed() {
		lock, err := l.Acquire(e.limit(), e.name("a"), opt)
		if !errors.Is(err, lockstep.ErrUnsupported) || !lockstep.SafeToRetry(err) {
			e.Errorf("%s: %v, want ErrUnsupported", what, err)
		}
		if err == nil {
			lock.Release(e.limit())
		}
	}
}
