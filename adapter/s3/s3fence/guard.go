package s3fence

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// MaxValueBytes bounds a value: it is what S3 takes in one put. Larger data are uploaded in parts
// and committed: see [Guard.Commit].
const MaxValueBytes = 5 << 30

// A Guard keeps guarded resources in a bucket. It is safe for concurrent use, beside others in this
// and in other processes. It needs no Close.
//
// Its errors: a refusal makes [fence.Refused] true. [fence.ErrBusy], [lockstep.ErrUnavailable] and
// [lockstep.ErrQuota] mean that nothing was changed. [lockstep.ErrUncertain] means that a step was
// sent and no answer came: repeat it with the same token, and its verdict tells. How long an answer
// is awaited, and how often what is not a conditional put is sent again, are the client's options;
// bound each call with its context.
type Guard struct {
	store store
	cfg   Config
}

var (
	_ fence.Guard    = (*Guard)(nil)
	_ fence.Resetter = (*Guard)(nil)
)

// Open makes a Guard on a bucket, which exists, and a client of the caller, and tries whether the
// store keeps the conditions of puts: see "Which stores" above. The trial takes about 60 requests,
// whose objects are below "PREFIX/_trial/" and removed at the end; a lifecycle rule may remove
// there what a process that died has left. A store that does not keep the conditions is
// [lockstep.ErrUnsupported], one that does not answer [lockstep.ErrUnavailable]; a bad argument is
// [lockstep.ErrInvalid] and names the field.
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

// Enter raises the mark to the grant's token and changes no data. Call it before the first read of
// a grant.
func (g *Guard) Enter(ctx context.Context, resource string, grant fence.Grant) error {
	return g.Admit(ctx, resource, grant, fence.Enter)
}

// Admit implements [fence.Guard]: it raises the mark alone.
func (g *Guard) Admit(ctx context.Context, resource string, grant fence.Grant, s fence.Step) error {
	return g.step(ctx, resource, grant, s, plan{})
}

// Write replaces the data.
func (g *Guard) Write(ctx context.Context, resource string, grant fence.Grant, data []byte) error {
	return g.put(ctx, resource, grant, fence.Write, data)
}

// WriteOnce replaces the data unless the grant has written here before, which is
// [fence.ErrAlready].
func (g *Guard) WriteOnce(ctx context.Context, resource string, grant fence.Grant, data []byte) error {
	return g.put(ctx, resource, grant, fence.WriteOnce, data)
}

// put uploads the data once the present mark admits the step, and then commits them.
func (g *Guard) put(ctx context.Context, resource string, grant fence.Grant, s fence.Step, data []byte) error {
	if int64(len(data)) > MaxValueBytes {
		err := &lockstep.InvalidError{Field: "data", Rule: fmt.Sprintf("are %d bytes long, the limit is %d", len(data), int64(MaxValueBytes))}
		return named(s.String(), resource, err)
	}
	key := g.NewKey(resource, grant)
	return g.step(ctx, resource, grant, s, plan{
		change: change{replaceData, key}, data: key,
		prepare: func(ctx context.Context) error { return failed(g.store.put(ctx, key, data)) },
	})
}

// Delete removes the data and keeps the mark, so that an older holder cannot bring them back. It
// counts as a write. Deleting what is not there is no error.
func (g *Guard) Delete(ctx context.Context, resource string, grant fence.Grant) error {
	return g.step(ctx, resource, grant, fence.Write, plan{change: change{kind: removeData}})
}

// step takes one step, of which p has the change and what goes with it, and tells of it.
func (g *Guard) step(ctx context.Context, resource string, grant fence.Grant, s fence.Step, p plan) error {
	err := g.decide(ctx, resource, grant, s, p)
	fence.Tell(g.cfg.Observer, resource, grant, s, err)
	return named(s.String(), resource, err)
}

func (g *Guard) decide(ctx context.Context, resource string, grant fence.Grant, s fence.Step, p plan) error {
	if err := CheckResource(resource); err != nil {
		return err
	}
	if _, err := (fence.Mark{}).Admit(grant, s); err != nil { // what no mark would admit
		return err
	}
	p.keys, p.nonce = keysOf(g.cfg.Prefix, resource), rand.Text()
	p.decide = func(now manifest) (manifest, []string, error) { return now.take(grant, s, p.change, p.nonce) }
	return g.carryOut(ctx, p)
}

func named(what, resource string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("s3fence: %s %s: %w", what, lockstep.Excerpt(resource), err)
}
