package storage

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// fatal is what the logger panics with on the goroutine of a write.
type fatal struct{ err error }

// pebbleLogger passes Pebble's log to slog. Pebble is verbose: its Info is our Debug.
type pebbleLogger struct{ s *Store }

func (l pebbleLogger) Infof(format string, args ...any) { l.log(slog.LevelDebug, format, args) }

func (l pebbleLogger) Errorf(format string, args ...any) { l.log(slog.LevelError, format, args) }

func (l pebbleLogger) log(level slog.Level, format string, args []any) {
	if l.s.log.Enabled(context.Background(), level) {
		l.s.log.Log(context.Background(), level, "pebble", "text", fmt.Sprintf(format, args...))
	}
}

// Fatalf must not return. Pebble calls it when its files can't be trusted any longer. The failure
// ends the node: on the goroutine of a write through a panic that the write turns into its error,
// elsewhere through Failed. A goroutine of Pebble that gets here is blocked forever; the process is
// about to exit.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf("pebble: "+strings.TrimPrefix(format, "pebble: "), args...)
	l.s.fail(err)
	if ownGoroutine() {
		panic(fatal{err})
	}
	select {}
}

// ownGoroutine reports whether a call of this package is on the stack, so that a panic ends there.
func ownGoroutine() bool {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, "/storage.(*Store).") {
			return true
		}
		if !more {
			return false
		}
	}
}

// rescue turns the panic of Fatalf into an error.
func rescue(err *error) {
	switch r := recover().(type) {
	case nil:
	case fatal:
		*err = r.err
	default:
		panic(r)
	}
}

func (s *Store) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) { s.log.Warn("pebble background work failed", "err", err) },
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			s.fail(fmt.Errorf("damaged file %s: %w", info.Path, info.Details))
		},
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) { s.log.Warn("log writes stalled", "why", info.Reason) },
		WriteStallEnd:   func() { s.log.Info("log writes resumed") },
		WALCreated:      s.walCreated,
	}
}
