package redisfence

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// MaxValueBytes bounds a value: it is the most that Redis can store in a string.
const MaxValueBytes = 512 << 20

// A Guard keeps guarded resources in Redis. It is safe for concurrent use, also together with other
// Guards in this process and in others. It needs no Close.
//
// For a refusal, [fence.Refused] is true. [lockstep.ErrUnavailable], [lockstep.ErrUnsupported] and
// [lockstep.ErrQuota] mean that no data was written. [lockstep.ErrUncertain] means that a step was
// sent and no answer came: repeat it with the same token to learn the outcome.
type Guard struct {
	rdb    redis.UniversalClient
	cfg    Config
	probed [buckets]atomic.Bool
}

var (
	_ fence.Guard    = (*Guard)(nil)
	_ fence.Resetter = (*Guard)(nil)
)

// New creates a Guard on the caller's client. The client's options set timeouts and how often a
// step is retried. New sends nothing. Its errors are [lockstep.ErrInvalid] and name the field.
func New(rdb redis.UniversalClient, cfg Config) (*Guard, error) {
	if rdb == nil {
		return nil, fmt.Errorf("redisfence: %w", &lockstep.InvalidError{Field: "client", Rule: "must not be nil"})
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("redisfence: %w", err)
	}
	return &Guard{rdb: rdb, cfg: cfg}, nil
}

// Enter raises the mark to the grant's token and changes no data. Call it before the first read of
// a grant.
func (g *Guard) Enter(ctx context.Context, resource string, grant fence.Grant) error {
	return g.Admit(ctx, resource, grant, fence.Enter)
}

// Admit implements [fence.Guard]: it only raises the mark.
func (g *Guard) Admit(ctx context.Context, resource string, grant fence.Grant, s fence.Step) error {
	return g.step(ctx, resource, grant, s, noWork, nil, nil)
}

// Write replaces the value.
func (g *Guard) Write(ctx context.Context, resource string, grant fence.Grant, value []byte) error {
	return g.set(ctx, resource, grant, fence.Write, value)
}

// WriteOnce replaces the value unless the grant has already written here, in which case it returns
// [fence.ErrAlready].
func (g *Guard) WriteOnce(ctx context.Context, resource string, grant fence.Grant, value []byte) error {
	return g.set(ctx, resource, grant, fence.WriteOnce, value)
}

func (g *Guard) set(ctx context.Context, resource string, grant fence.Grant, s fence.Step, value []byte) error {
	if len(value) > MaxValueBytes {
		return &lockstep.InvalidError{Field: "value", Rule: fmt.Sprintf("is %d bytes long, the limit is %d", len(value), MaxValueBytes)}
	}
	return g.step(ctx, resource, grant, s, setWork, []string{g.DataKey(resource)}, []string{string(value)})
}

// Delete removes the value and keeps the mark, so that an older holder cannot bring it back. It
// counts as a write. Deleting a missing value is not an error.
func (g *Guard) Delete(ctx context.Context, resource string, grant fence.Grant) error {
	return g.step(ctx, resource, grant, fence.Write, deleteWork, []string{g.DataKey(resource)}, nil)
}

// step takes one step: sc is the rule around some work, whose keys and arguments are passed.
func (g *Guard) step(ctx context.Context, resource string, grant fence.Grant, s fence.Step, sc script, workKeys, workArgs []string) error {
	err := g.decide(ctx, resource, grant, s, sc, workKeys, workArgs)
	fence.Tell(g.cfg.Observer, resource, grant, s, err)
	return named(s.String(), resource, err)
}

func (g *Guard) decide(ctx context.Context, resource string, grant fence.Grant, s fence.Step, sc script, workKeys, workArgs []string) error {
	if err := fence.CheckResource(resource); err != nil {
		return err
	}
	if _, err := (fence.Mark{}).Admit(grant, s); err != nil { // no mark would admit this
		return err
	}
	if err := ctx.Err(); err != nil {
		return err // while it is certain that nothing was sent
	}
	k := keysOf(g.cfg.KeyPrefix, resource)
	if err := g.probe(ctx, k); err != nil {
		return err
	}
	args := []string{grant.Backend, grant.Lock, decimal(grant.Token), strconv.Itoa(int(s)), rand.Text()}
	reply, err := g.eval(ctx, sc, slices.Concat([]string{k.mark}, workKeys), slices.Concat(args, workArgs))
	if err != nil {
		return outcome(err)
	}
	return verdict(reply, grant, s)
}

// verdict turns the reply of a step into an error of package fence.
func verdict(reply []string, grant fence.Grant, s fence.Step) error {
	if len(reply) == 1 && reply[0] == "admitted" {
		return nil
	}
	seen, err := parseMark(reply)
	if err != nil {
		return err
	}
	if _, err := seen.Admit(grant, s); err != nil {
		return err
	}
	return fmt.Errorf("the script refuses what the rule admits: mark %+v, grant %+v, %v", seen, grant, s)
}

// Read returns the value, or an error that wraps [fs.ErrNotExist] if there is none. It reads from
// the server that the client uses for reads, which may be a lagging replica: see the client's
// options.
func (g *Guard) Read(ctx context.Context, resource string) ([]byte, error) {
	if err := fence.CheckResource(resource); err != nil {
		return nil, named("read", resource, err)
	}
	value, err := g.rdb.Get(ctx, g.DataKey(resource)).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, named("read", resource, fs.ErrNotExist)
	case err != nil:
		return nil, named("read", resource, unavailable(err))
	}
	return value, nil
}

// DataKey is the key of the resource's value.
func (g *Guard) DataKey(resource string) string { return keysOf(g.cfg.KeyPrefix, resource).data }

// Tag is "{BUCKET}". Keys that contain it, with no brace before it, are in the slot of the
// resource's mark, as [Guard.Run] requires in a Cluster.
func (g *Guard) Tag(resource string) string { return tagOf(bucketOf(resource)) }

// Mark returns the current mark, which is zero if no grant has reached the resource.
func (g *Guard) Mark(ctx context.Context, resource string) (fence.Mark, error) {
	if err := fence.CheckResource(resource); err != nil {
		return fence.Mark{}, named("read mark of", resource, err)
	}
	reply, err := g.eval(ctx, markScript, []string{keysOf(g.cfg.KeyPrefix, resource).mark}, nil)
	if err != nil {
		return fence.Mark{}, named("read mark of", resource, unavailable(err))
	}
	m, err := parseMark(reply)
	return m, named("read mark of", resource, err)
}

// Reset gives the resource to another lock or backend, as [fence.Mark.Reset] defines. The data
// stays. If repeated after a lost reply, it returns [fence.ErrMoved] with the new lock's name.
func (g *Guard) Reset(ctx context.Context, resource string, from, to fence.Mark) error {
	return named("reset", resource, g.reset(ctx, resource, from, to))
}

func (g *Guard) reset(ctx context.Context, resource string, from, to fence.Mark) error {
	if err := fence.CheckResource(resource); err != nil {
		return err
	}
	next, err := from.Reset(from, to)
	if err != nil {
		return err
	}
	k := keysOf(g.cfg.KeyPrefix, resource)
	if err := g.probe(ctx, k); err != nil {
		return err
	}
	reply, err := g.eval(ctx, resetScript, []string{k.mark}, slices.Concat(fields(from), fields(next)))
	if err != nil {
		return outcome(err)
	}
	if len(reply) == 1 && reply[0] == "reset" {
		return nil
	}
	present, err := parseMark(reply)
	if err != nil {
		return err
	}
	_, err = present.Reset(from, to)
	return err
}

func named(what, resource string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redisfence: %s %s: %w", what, lockstep.Excerpt(resource), err)
}
