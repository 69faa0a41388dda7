package cli

import (
	"github.com/spf13/pflag"

	"github.com/lockstep-dev/lockstep/cmd/internal/supervise"
)

// endWithFlag says what ends a command, apart from signals and the lock.
type endWithFlag struct{ words []string }

func (f *endWithFlag) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.words, "end-with", nil, "end when the `parent` process is gone, when stdin is closed, or either (parent,stdin), also while waiting")
}

// plan checks the words. The parent is the one at program start.
func (f *endWithFlag) plan(parent int) (supervise.EndWith, error) {
	var e supervise.EndWith
	for _, w := range f.words {
		switch w {
		case "parent":
			e.Parent = parent
		case "stdin":
			e.Stdin = true
		default:
			return supervise.EndWith{}, usageError("--end-with: %q: want parent, stdin or both", w)
		}
	}
	return e, nil
}
