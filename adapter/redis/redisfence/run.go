package redisfence

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// maxWorkWords bounds the keys and arguments of a [Work] together. Redis runs nothing else while a
// script is running.
const maxWorkWords = 1000

// Work is what [Guard.Run] does if the step is admitted, in the same script.
type Work struct {
	// Lua is the body of a function with the parameters KEYS and ARGV, such as "redis.call('RPUSH',
	// KEYS[1], ARGV[1])". Required. Keep it constant and pass what varies in Args: the server
	// caches every script that it has seen. The return value is ignored, except for an error such
	// as one from redis.error_reply or redis.call, which ends the step. Redis does not roll back:
	// what the body wrote before stays.
	Lua string
	// Keys lists all keys that it uses. In a Cluster each must contain the [Guard.Tag] of the
	// resource. [Guard.DataKey] may be one of them; the key of a mark may not.
	Keys []string
	// Args are its arguments. Keys and Args together are at most 1000.
	Args []string
}

// Run takes a step of a grant, [fence.Write] or [fence.WriteOnce], with your own work. If the
// client retries on its own after a lost reply, the work is not repeated. If the work fails, the
// mark stays raised and the write does not count as done.
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
