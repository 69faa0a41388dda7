package redisfence

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// maxWorkWords bounds the keys and arguments of a [Work] together. Redis runs nothing else while a
// script runs.
const maxWorkWords = 1000

// Work is what [Guard.Run] does when the step is admitted, in the same script.
type Work struct {
	// Lua is the body of a function with the parameters KEYS and ARGV, such as "redis.call('RPUSH',
	// KEYS[1], ARGV[1])". Required. Keep it constant and put what varies into Args: the server
	// keeps each text that it has seen. What it returns is not looked at, but for an error such as
	// that of redis.error_reply or redis.call, which ends the step. Redis takes nothing back: what
	// the body wrote before stays.
	Lua string
	// Keys are all keys that it uses. In a Cluster each contains [Guard.Tag] of the resource.
	// [Guard.DataKey] may be one. None may be a key of a mark.
	Keys []string
	// Args are its arguments. With the Keys they are at most 1000.
	Args []string
}

// Run takes a step of a grant, [fence.Write] or [fence.WriteOnce], whose work is yours. A lost
// reply that the client notices by itself does not repeat the work. When the work fails the mark is
// raised, and the write does not count as done.
func (g *Guard) Run(ctx context.Context, resource string, grant fence.Grant, s fence.Step, w Work) error {
	if err := w.check(s); err != nil {
		return named("run", resource, err)
	}
	if slices.Contains(w.Keys, keysOf(g.cfg.KeyPrefix, resource).mark) {
		return named("run", resource, &lockstep.InvalidError{Field: "keys", Rule: "must not contain the key of the mark"})
	}
	return g.step(ctx, resource, grant, s, stepScript(w.Lua), w.Keys, w.Args)
}

func (w Work) check(s fence.Step) error {
	switch {
	case s != fence.Write && s != fence.WriteOnce:
		return &lockstep.InvalidError{Field: "step", Value: s.String(), Rule: "must be Write or WriteOnce"}
	case w.Lua == "":
		return &lockstep.InvalidError{Field: "lua", Rule: "must not be empty"}
	case len(w.Keys)+len(w.Args) > maxWorkWords:
		return &lockstep.InvalidError{Field: "keys and args", Rule: fmt.Sprintf("are %d, the limit is %d", len(w.Keys)+len(w.Args), maxWorkWords)}
	}
	return nil
}
