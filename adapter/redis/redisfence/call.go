package redisfence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// eval runs a script whose reply is an array of strings.
func (g *Guard) eval(ctx context.Context, sc script, keys, args []string) ([]string, error) {
	reply, err := g.send(ctx, "evalsha", sc.sha, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return g.send(ctx, "eval", sc.text, keys, args)
	}
	return reply, err
}

func (g *Guard) send(ctx context.Context, verb, sc string, keys, args []string) ([]string, error) {
	words := []any{verb, sc, len(keys)}
	for _, word := range keys {
		words = append(words, word)
	}
	for _, word := range args {
		words = append(words, word)
	}
	cmd := redis.NewStringSliceCmd(ctx, words...)
	cmd.SetFirstKeyPos(3)
	if err := g.rdb.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Result()
}

// outcome is the error of a step that may write; it uses the contract's errors to say what is
// certain.
func outcome(err error) error {
	if _, answered := errors.AsType[redis.Error](err); answered || neverSent(err) {
		return unavailable(err)
	}
	return fmt.Errorf("%w: %w", lockstep.ErrUncertain, err)
}

// neverSent is false for the end of a context, which go-redis reports in the same way before and
// after sending.
func neverSent(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	return ok && dial.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}

// passing lists the error replies of a server that temporarily runs no scripts. Any other error
// reply concerns the request itself, or comes from a user's Lua.
var passing = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "NOREPLICAS", "MISCONF", "NOAUTH", "NOPERM",
}

// unavailable is the error of a call that wrote nothing, unless the error comes from a user's Lua.
func unavailable(err error) error {
	_, answered := errors.AsType[redis.Error](err)
	passes := slices.ContainsFunc(passing, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case redis.HasErrorPrefix(err, "OOM"):
		return fmt.Errorf("%w: the memory of the server is full: %w", lockstep.ErrQuota, err)
	case answered && !passes:
		return err
	default:
		return fmt.Errorf("%w: %w", lockstep.ErrUnavailable, err)
	}
}

// fields returns the fields of a mark as scripts expect them.
func fields(m fence.Mark) []string {
	return []string{m.Backend, m.Lock, decimal(m.Token), decimal(m.Written)}
}

func decimal(t lockstep.Token) string { return strconv.FormatUint(uint64(t), 10) }

// parseMark reads the mark in a reply, after its first word.
func parseMark(reply []string) (fence.Mark, error) {
	if len(reply) != 5 {
		return fence.Mark{}, fmt.Errorf("the server answers with %q, which is no mark", reply)
	}
	token, err := strconv.ParseUint(reply[3], 10, 64)
	if err != nil {
		return fence.Mark{}, fmt.Errorf("token of the mark: %w", err)
	}
	written, err := strconv.ParseUint(reply[4], 10, 64)
	if err != nil {
		return fence.Mark{}, fmt.Errorf("written token of the mark: %w", err)
	}
	return fence.Mark{Backend: reply[1], Lock: reply[2], Token: lockstep.Token(token), Written: lockstep.Token(written)}, nil
}
