package cli

import "github.com/spf13/pflag"

// endWithFlag says what ends a command, apart from signals and the lock.
type endWithFlag struct{ words []string }

func (f *endWithFlag) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.words, "end-with", nil, "end when the `parent` process is gone, when stdin is closed, or either (parent,stdin), also while waiting")
}

// endWith is what ends a command that waits for a lock or holds it.
type endWith struct {
	parent int  // the process that started this one, if its end counts; 0: it does not
	stdin  bool // standard input must keep a writer
}

// plan checks the words. The parent is the one at program start.
func (f *endWithFlag) plan(parent int) (endWith, error) {
	var e endWith
	for _, w := range f.words {
		switch w {
		case "parent":
			e.parent = parent
		case "stdin":
			e.stdin = true
		default:
			return endWith{}, usageError("--end-with: %q: want parent, stdin or both", w)
		}
	}
	return e, nil
}
