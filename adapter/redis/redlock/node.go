package redlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// A node is one of the masters. It is safe for concurrent use.
type node struct {
	index   int
	client  *redis.Client // the user's, whose reads and writes end after the node timeout
	field   string        // names it in errors
	address string
	timeout time.Duration
	log     *slog.Logger

	// examining is held by the caller that examines the node. The others wait for the result: an
	// unresponsive node has one such request in flight, however many callers want its vote.
	examining chan struct{}
	identity  *identities
}

func newNode(index int, client *redis.Client, timeout time.Duration, identity *identities, log *slog.Logger) *node {
	address := client.Options().Addr
	return &node{
		index: index, client: client.WithTimeout(timeout), address: address, field: nodeField(index, address), timeout: timeout, log: log,
		examining: make(chan struct{}, 1), identity: identity,
	}
}

// A notSentError is the error of a request that certainly had no effect on the node.
type notSentError struct{ cause error }

func (e *notSentError) Error() string { return "not sent: " + e.cause.Error() }
func (e *notSentError) Unwrap() error { return e.cause }

// hadNoEffect reports whether the node certainly did not do what it was asked. Scripts write in one
// command, so an error reply is such a case.
func hadNoEffect(err error) bool {
	_, notSent := errors.AsType[*notSentError](err)
	_, replied := errors.AsType[redis.Error](err)
	return notSent || replied
}

// once is a command that is sent once. Otherwise the client would resend it if no reply came, and
// then it would be unknown what the node has done.
type once struct{ *redis.Cmd }

// NoRetry implements [redis.Cmder].
func (once) NoRetry() bool { return true }

// eval runs a script on the node.
func (n *node) eval(ctx context.Context, s script, keys []string, args ...any) (any, error) {
	words := []any{"evalsha", s.hash, len(keys)}
	for _, key := range keys {
		words = append(words, key)
	}
	words = append(words, args...)
	answer, err := n.send(ctx, words)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		words[0], words[1] = "eval", s.text
		answer, err = n.send(ctx, words)
	}
	return answer, err
}

func (n *node) send(ctx context.Context, words []any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, &notSentError{err}
	}
	cmd := once{redis.NewCmd(ctx, words...)}
	if err := n.client.Process(ctx, cmd); err != nil {
		return nil, n.failure(err)
	}
	return cmd.Val(), nil
}

// failure says where an error comes from and whether the request was sent. After a network failure
// the node is examined again, since another server may be there next time.
func (n *node) failure(err error) error {
	if _, replied := errors.AsType[redis.Error](err); replied {
		return fmt.Errorf("%s: %w", n.field, err)
	}
	if !errors.Is(err, context.Canceled) {
		n.identity.forget(n.index)
	}
	op, ok := errors.AsType[*net.OpError](err)
	if ok && op.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		err = &notSentError{err}
	}
	return fmt.Errorf("%s: %w", n.field, err)
}

// yes runs a script that returns 1 or 0.
func (n *node) yes(ctx context.Context, s script, keys []string, args ...any) (bool, error) {
	answer, err := n.eval(ctx, s, keys, args...)
	if err != nil {
		return false, err
	}
	number, ok := answer.(int64)
	if !ok {
		return false, fmt.Errorf("%s: a script answered %T, want a number", n.field, answer)
	}
	return number == 1, nil
}
