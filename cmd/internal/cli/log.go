package cli

import (
	"io"
	"log/slog"

	"github.com/spf13/pflag"
)

// logFlags are the flags of commands that write a log, which goes to standard error.
type logFlags struct {
	level  string
	format string
}

func (l *logFlags) register(flags *pflag.FlagSet, level slog.Level) {
	flags.StringVar(&l.level, "log-level", level.String(), "minimum level to log: debug, info, warn or error")
	flags.StringVar(&l.format, "log-format", "text", "log format: text or json")
}

func (l *logFlags) logger(w io.Writer) (*slog.Logger, error) {
	var options slog.HandlerOptions
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level)); err != nil {
		return nil, usageError("--log-level: %q: want debug, info, warn or error", l.level)
	}
	options.Level = level
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &options)), nil
	default:
		return nil, usageError("--log-format: %q: want text or json", l.format)
	}
}
