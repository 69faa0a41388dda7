package s3fence

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// MaxValueBytes bounds a value: it is what S3 takes in one put. Larger data are uploaded in parts and committed: see [Guard.Commit].
const MaxValueBytes = 5 << 30

// A Guard keeps guarded resources in a bucket. It is safe for concurrent use, beside others in this and in other processes. It needs no
// Close.
//
// Its errors: a refusal makes [fence.Refused] true. [fence.ErrBusy], [lockstep.ErrUnavailable] and [lockstep.ErrQuota] mean that nothing was
// changed. [lockstep.ErrUncertain] means that a step was sent and no answer came: repeat it with the same token, and its verdict tells.
// How long an answer is awaited, and how often what is not a conditional put is sent again, are the client's options; bound each call with its
// context.
type Guard struct {
	store store
	cfg   Config
}

var (
	_ fence.Guard    = (*Guard)(nil)
	_ fence.Resetter = (*Guard)(nil)
)

// Open makes a Guard on a bucket, which exists, and a client of the caller, and tries whether the store keeps the conditions of puts: see
// "Which stores" above. The trial takes about 60 requests, whose objects are below "PREFIX/_trial/" and removed at the end; a lifecycle rule may remove there what a process that died has left. A store that does not keep
// the conditions is [lockstep.ErrUnsupported], one that does not answer [lockstep.ErrUnavailable]; a bad argument is [lockstep.ErrInvalid]
// and names the field.
func Open(ctx context.Context, cli *s3.Client, bucket string, cfg Config) (*Guard, error) {
	g, err := newGuard(cli, bucket, cfg)
	if err == nil {
		err = g.store.try(ctx, g.cfg.Prefix+"/"+trialName+"/"+rand.Text()+"/")
	}
	if err != nil {
		return nil, fmt.Errorf("s3fence: open bucket %s: %w", lockstep.Excerpt(bucket), err)
	}
	return g, nil
}

func newGuard(cli *s3.Client, bucket string, cfg Config) (*Guard, error) {
	if cli == nil {
		return nil, &lockstep.InvalidError{Field: "client", Rule: "must not be nil"}
	}
	if bucket == "" {
		return nil, &lockstep.InvalidError{Field: "bucket", Rule: "must not be empty"}
	}
	cfg, err := cfg.withDefaults()
	return &Guard{store: store{cli: cli, bucket: bucket}, cfg: cfg}, err
}

// Enter raises the mark to the grant's token and changes no data. Call it before the first read of a grant.
func (g *Guard) Enter(ctx context.Context, resource string, grant fence.Grant) error {
	return g.Admit(ctx, resource, grant, fence.Enter)
}

// Admit implements [fence.Guard]: it raises the mark alone.
func (g *Guard) Admit(ctx context.Context, resource string, grant fence.Grant, s fence.Step) error {
	return g.step(ctx, resource, grant, s, change{}, nil)
}

// Write replaces the data.
func (g *Guard) Write(ctx context.Context, resource string, grant fence.Grant, data []byte) error {
	return g.put(ctx, resource, grant, fence.Write, data)
}

// WriteOnce replaces the data unless the grant has written here before, which is [fence.ErrAlready].
func (g *Guard) WriteOnce(ctx context.Context, resource string, grant fence.Grant, data []byte) error {
	return g.put(ctx, resource, grant, fence.WriteOnce, data)
}

// put uploads the data once the present mark admits the step, and then commits them.
func (g *Guard) put(ctx context.Context, resource string, grant fence.Grant, s fence.Step, data []byte) error {
	if int64(len(data)) > MaxValueBytes {
		err := &lockstep.InvalidError{Field: "data", Rule: fmt.Sprintf("are %d bytes long, the limit is %d", len(data), int64(MaxValueBytes))}
		return named(s.String(), resource, err)
	}
	key, uploaded := g.NewKey(resource, grant), false
	err := g.step(ctx, resource, grant, s, change{replaceData, key}, func(ctx context.Context) error {
		uploaded = true
		return failed(g.store.put(ctx, key, data))
	})
	if uploaded && err != nil && !errors.Is(err, lockstep.ErrUncertain) {
		g.store.discard(ctx, key) // no manifest refers to it, nor will
	}
	return err
}

// Delete removes the data and keeps the mark, so that an older holder cannot bring them back. It counts as a write. Deleting
// what is not there is no error.
func (g *Guard) Delete(ctx context.Context, resource string, grant fence.Grant) error {
	return g.step(ctx, resource, grant, fence.Write, change{kind: removeData}, nil)
}

// step takes one step and tells of it.
func (g *Guard) step(ctx context.Context, resource string, grant fence.Grant, s fence.Step, c change, prepare func(context.Context) error) error {
	err := g.decide(ctx, resource, grant, s, c, prepare)
	fence.Tell(g.cfg.Observer, resource, grant, s, err)
	return named(s.String(), resource, err)
}

func (g *Guard) decide(ctx context.Context, resource string, grant fence.Grant, s fence.Step, c change, prepare func(context.Context) error) error {
	if err := CheckResource(resource); err != nil {
		return err
	}
	if _, err := (fence.Mark{}).Admit(grant, s); err != nil { // what no mark would admit
		return err
	}
	nonce := rand.Text()
	return g.carryOut(ctx, plan{
		keys: keysOf(g.cfg.Prefix, resource), nonce: nonce, prepare: prepare,
		decide: func(now manifest) (manifest, []string, error) { return now.take(grant, s, c, nonce) },
	})
}

func named(what, resource string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("s3fence: %s %s: %w", what, lockstep.Excerpt(resource), err)
}
