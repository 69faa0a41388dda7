package replica

import (
	"fmt"
	"log/slog"
)

// raftLogger sends Raft's log to slog, at a lower level: Raft's Info is our Debug.
type raftLogger struct{ log *slog.Logger }

// A line is formatted only if somebody reads it.
type line struct {
	format string
	args   []any
}

func (l line) LogValue() slog.Value { return slog.StringValue(l.text()) }

func (l line) text() string {
	if l.format == "" {
		return fmt.Sprint(l.args...)
	}
	return fmt.Sprintf(l.format, l.args...)
}

func (l raftLogger) Debug(...any)                {}
func (l raftLogger) Debugf(string, ...any)       {}
func (l raftLogger) Info(v ...any)               { l.log.Debug("raft", "text", line{"", v}) }
func (l raftLogger) Infof(f string, v ...any)    { l.log.Debug("raft", "text", line{f, v}) }
func (l raftLogger) Warning(v ...any)            { l.log.Debug("raft", "text", line{"", v}) }
func (l raftLogger) Warningf(f string, v ...any) { l.log.Debug("raft", "text", line{f, v}) }
func (l raftLogger) Error(v ...any)              { l.log.Error("raft", "text", line{"", v}) }
func (l raftLogger) Errorf(f string, v ...any)   { l.log.Error("raft", "text", line{f, v}) }
func (l raftLogger) Fatal(v ...any)              { panic("raft: " + line{"", v}.text()) }
func (l raftLogger) Fatalf(f string, v ...any)   { panic("raft: " + line{f, v}.text()) }
func (l raftLogger) Panic(v ...any)              { panic("raft: " + line{"", v}.text()) }
func (l raftLogger) Panicf(f string, v ...any)   { panic("raft: " + line{f, v}.text()) }
