package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
)

// A store runs scripts. go-redis waits for a reply until its own ReadTimeout, whatever happens to
// the context. Here a call ends with its context, and its reply is awaited in the background for
// that long.
type store struct {
	rdb redis.UniversalClient
	// takes bounds the takes in progress. More of them would wait in the client's pool, where it is
	// unknown whether one was sent, and would delay renewals and releases.
	takes chan struct{}

	// open holds the takes in progress, abandoned or not, by the id of their claim. Each ends by
	// the client's timeouts.
	mu   sync.Mutex
	open map[string]chan struct{}
}

func newStore(rdb redis.UniversalClient) *store {
	return &store{rdb: rdb, takes: make(chan struct{}, maxTakes(rdb)), open: map[string]chan struct{}{}}
}

// maxTakes leaves a quarter of the client's connections to renewals and releases.
func maxTakes(rdb redis.UniversalClient) int {
	size := 16 // for kinds of client that do not report it
	switch c := rdb.(type) {
	case *redis.Client:
		size = c.Options().PoolSize
	case *redis.ClusterClient:
		size = c.Options().PoolSize
	}
	return max(size-max(size/4, 1), 1)
}

// once is a command that go-redis does not retry on its own.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

type answer struct {
	value any
	err   error
}

// take runs takeScript for a claim, and makes undoing it wait for the end of the call.
func (s *store) take(ctx context.Context, id string, k keys, args ...any) (any, error) {
	select {
	case s.takes <- struct{}{}:
	case <-ctx.Done():
		return nil, notSent(ctx.Err())
	}
	return s.start(ctx, s.begin(id), takeScript, k, append([]any{id}, args...))
}

// begin records a take until end is called.
func (s *store) begin(id string) (end func()) {
	done := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[id] = done
	return func() {
		<-s.takes
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, id)
		close(done)
	}
}

// run runs a script that needs no undoing.
func (s *store) run(ctx context.Context, sc script, k keys, args ...any) (any, error) {
	return s.start(ctx, func() {}, sc, k, args)
}

// start sends a script and waits for the answer or for the end of ctx. The call itself may
// continue; end is called when it has ended.
func (s *store) start(ctx context.Context, end func(), sc script, k keys, args []any) (any, error) {
	if ctx.Err() != nil {
		end()
		return nil, notSent(ctx.Err())
	}
	answers := make(chan answer, 1) // buffered, so that an abandoned call can end
	go func() {
		defer end()
		value, err := s.eval(ctx, sc, k, args)
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, classify(a.err, k)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// await waits until no take of the claim is in progress.
func (s *store) await(ctx context.Context, id string) error {
	s.mu.Lock()
	done := s.open[id]
	s.mu.Unlock()
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *store) eval(ctx context.Context, sc script, k keys, args []any) (any, error) {
	value, err := s.send(ctx, "evalsha", sc.sha, k, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return s.send(ctx, "eval", sc.text, k, args)
	}
	return value, err
}

func (s *store) send(ctx context.Context, verb, sc string, k keys, args []any) (any, error) {
	cmd := redis.NewCmd(ctx, append([]any{verb, sc, 2, k.record, k.counter}, args...)...)
	cmd.SetFirstKeyPos(3)
	err := s.rdb.Process(ctx, once{cmd})
	if err != nil {
		return nil, err
	}
	return cmd.Result()
}

// classify returns an error of the contract if it is certain that nothing was changed. Other errors
// leave that open.
func classify(err error, k keys) error {
	if err == nil {
		return nil
	}
	if redisErr, ok := errors.AsType[redis.Error](err); ok {
		return refused(redisErr, k)
	}
	dial, ok := errors.AsType[*net.OpError](err)
	if ok && dial.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed) {
		return notSent(err)
	}
	return err
}

// refused is the error for an error reply: the script has changed no lock.
func refused(err redis.Error, k keys) error {
	switch {
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return fmt.Errorf("%w: the key %q holds something that is no lock", lockstep.ErrInvalid, k.record)
	case redis.HasErrorPrefix(err, "OOM"):
		return fmt.Errorf("%w: the memory of the server is full: %w", lockstep.ErrQuota, err)
	default:
		return fmt.Errorf("%w: %w", lockstep.ErrUnavailable, err)
	}
}

func notSent(err error) error { return fmt.Errorf("%w: %w", lockstep.ErrUnavailable, err) }
