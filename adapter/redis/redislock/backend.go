package redislock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// A backend implements the protocol for one Locker.
type backend struct {
	*store
	flights flights
	hub     *hub
	cfg     Config
	owner   string // public
	closed  atomic.Bool

	// probed marks the buckets whose server was checked. Without a Cluster, one covers all.
	probed [buckets]atomic.Bool
}

var (
	_ locker.Backend = (*backend)(nil)
	_ locker.Renewer = (*backend)(nil)
	_ locker.Waker   = (*backend)(nil)
)

func (b *backend) keys(name string) keys { return keysOf(b.cfg.KeyPrefix, name) }

// Take implements [locker.Backend].
func (b *backend) Take(ctx context.Context, c *locker.Claim) (locker.Grant, error) {
	k := b.keys(c.Names[0])
	if err := b.probe(ctx, bucketOf(c.Names[0]), k); err != nil {
		return locker.Grant{}, err
	}
	return b.takeInTurn(ctx, c, k)
}

// takeNow asks the server.
func (b *backend) takeNow(ctx context.Context, c *locker.Claim, k keys) (locker.Grant, error) {
	reply, err := b.take(ctx, c.ID, k, b.cfg.TTL.Milliseconds(), b.owner, labelsText(c.Metadata))
	if err != nil {
		return locker.Grant{}, err
	}
	return b.granted(reply)
}

// granted reads the reply of takeScript.
func (b *backend) granted(reply any) (locker.Grant, error) {
	fields, ok := reply.([]any)
	if !ok || len(fields) < 2 {
		return locker.Grant{}, fmt.Errorf("the server answers a take with %v", reply)
	}
	if fields[0] == "granted" {
		token, err := parseToken(fields[1])
		return locker.Grant{Token: token, Owner: b.owner}, err
	}
	holder, err := parseRecord(fields[1:])
	if err != nil || holder == nil { // a foreign hash is in the way
		return locker.Grant{}, lockstep.ErrBusy
	}
	return locker.Grant{}, &lockstep.BusyError{Holders: []lockstep.Claim{*holder}}
}

// holding is the public view of a claim that was just granted.
func (b *backend) holding(c *locker.Claim, g locker.Grant) lockstep.Claim {
	return lockstep.Claim{Owner: b.owner, Token: g.Token, Since: time.Now(), Metadata: maps.Clone(c.Metadata)}
}

// Renew implements [locker.Renewer].
func (b *backend) Renew(ctx context.Context, c *locker.Claim) error {
	return b.own(ctx, extendScript, c, c.TTL.Milliseconds())
}

// Drop implements [locker.Backend].
func (b *backend) Drop(ctx context.Context, c *locker.Claim) error {
	if err := b.await(ctx, c.ID); err != nil {
		return err
	}
	return b.own(ctx, releaseScript, c)
}

// own runs a script that does something to the claim's own record.
func (b *backend) own(ctx context.Context, sc script, c *locker.Claim, args ...any) error {
	reply, err := b.run(ctx, sc, b.keys(c.Names[0]), append([]any{c.ID}, args...)...)
	switch {
	case errors.Is(err, lockstep.ErrInvalid):
		return &lockstep.LossError{Reason: lockstep.RecordMissing, Detail: err.Error()}
	case err != nil:
		return err
	case reply == int64(1):
		return nil
	default:
		return &lockstep.LossError{Reason: lockstep.RecordMissing, Detail: "the key is gone or belongs to another holder"}
	}
}

// Close implements [locker.Backend].
func (b *backend) Close(ctx context.Context) error {
	b.closed.Store(true)
	b.hub.close(ctx)
	return nil
}

// probe checks the server before its first lock.
func (b *backend) probe(ctx context.Context, bucket int, k keys) error {
	if _, alone := b.rdb.(*redis.Client); alone {
		bucket = 0
	}
	if b.probed[bucket].Load() {
		return nil
	}
	reply, err := b.run(ctx, probeScript, k)
	if err != nil {
		return probeFailed(err)
	}
	server, err := parseServer(reply)
	if err != nil {
		return err
	}
	if err := server.refuse(b.cfg.Eviction); err != nil {
		return err
	}
	if server.policy == "" {
		b.cfg.Logger.Warn("the server does not say whether it evicts keys: the user has no right to INFO", slog.String("key", k.counter))
	}
	b.probed[bucket].Store(true)
	return nil
}

// probeFailed keeps what is known about the error, and says that nothing was taken.
func probeFailed(err error) error {
	if lockstep.SafeToRetry(err) {
		return err
	}
	return fmt.Errorf("%w: %w", lockstep.ErrUnavailable, err)
}

// callPatience bounds calls that have no deadline.
const callPatience = 10 * time.Second

// show returns the holder of the lock, or nil if there is none.
func (b *backend) show(ctx context.Context, name string) (*lockstep.Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	reply, err := b.run(ctx, showScript, b.keys(name))
	if err != nil {
		return nil, err
	}
	fields, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("the server answers a look with %v", reply)
	}
	return parseRecord(fields)
}

// labelsText encodes labels for storage. They have already been checked, so this cannot fail.
func labelsText(labels map[string]string) string {
	text, err := json.Marshal(labels)
	if err != nil {
		panic(fmt.Sprintf("redislock: labels %v: %v", labels, err))
	}
	return string(text)
}
