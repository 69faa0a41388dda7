package s3fence

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// MaxValueBytes bounds a value: it is the most that S3 accepts in one put. Larger data must be
// uploaded in parts and committed: see [Guard.Commit].
const MaxValueBytes = 5 << 30

// A Guard keeps guarded resources in a bucket. It is safe for concurrent use, also together with
// other Guards in this process and in others. It needs no Close.
//
// For a refusal, [fence.Refused] is true. [fence.ErrBusy], [lockstep.ErrUnavailable] and
// [lockstep.ErrQuota] mean that nothing was changed. [lockstep.ErrUncertain] means that a step was
// sent and no answer came: repeat it with the same token to learn the outcome. The client's options
// set how long to wait for a response, and how often to retry requests other than conditional puts;
// bound each call with its context.
type Guard struct {
	store store
	cfg   Config
}

var (
	_ fence.Guard    = (*Guard)(nil)
	_ fence.Resetter = (*Guard)(nil)
)

// Open creates a Guard on an existing bucket with the caller's client, and tests whether the store
// honours conditional puts: see "Which stores" above. The trial takes about 60 requests; its
// objects are below "PREFIX/_trial/" and are removed at the end. A lifecycle rule may remove what a
// dead process left there. Open returns [lockstep.ErrUnsupported] if the store does not honour the
// conditions, [lockstep.ErrUnavailable] if it does not answer, and [lockstep.ErrInvalid], which
// names the field, for a bad argument.
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

// Admit implements [fence.Guard]: it only raises the mark.
func (g *Guard) Admit(ctx context.Context, resource string, grant fence.Grant, s fence.Step) error {
	return g.step(ctx, resource, grant, s, plan{})
}

// Write replaces the data.
func (g *Guard) Write(ctx context.Context, resource string, grant fence.Grant, data []byte) error {
	return g.put(ctx, resource, grant, fence.Write, data)
}

// WriteOnce replaces the data unless the grant has already written here, in which case it returns
// [fence.ErrAlready].
func (g *Guard) WriteOnce(ctx context.Context, resource string, grant fence.Grant, data []byte) error {
	return g.put(ctx, resource, grant, fence.WriteOnce, data)
}

// put uploads the data once the current mark admits the step, and then commits it.
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

// Delete removes the data and keeps the mark, so that an older holder cannot bring it back. It
// counts as a write. Deleting missing data is not an error.
func (g *Guard) Delete(ctx context.Context, resource string, grant fence.Grant) error {
	return g.step(ctx, resource, grant, fence.Write, plan{change: change{kind: removeData}})
}

// step takes one step, described by p, and notifies the Observer.
func (g *Guard) step(ctx context.Context, resource string, grant fence.Grant, s fence.Step, p plan) error {
	err := g.decide(ctx, resource, grant, s, p)
	fence.Tell(g.cfg.Observer, resource, grant, s, err)
	return named(s.String(), resource, err)
}

func (g *Guard) decide(ctx context.Context, resource string, grant fence.Grant, s fence.Step, p plan) error {
	if err := CheckResource(resource); err != nil {
		return err
	}
	if _, err := (fence.Mark{}).Admit(grant, s); err != nil { // no mark would admit this
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
