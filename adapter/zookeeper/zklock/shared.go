package zklock

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// grantShared grants a shared claim when only shared ones are before it. It takes the token of the
// nearest one, which must have written it, or its own czxid if there is none. While the nearest has
// not yet written its token, the claim waits without a grant.
//
// Why only the nearest: let i and j hold at the same time, i before j. The claim from which j took
// its token was between them or i itself, since i existed. The same is true of that claim, and so
// on down to i: the tokens are the same. If a claim took its token from any other claim before it,
// it could skip i, and i could later take a different token.
//
// Why tokens never decrease: an exclusive claim between i and j in the queue was not granted while
// i existed, and one behind j has a later czxid than the claim that all their tokens came from.
func (k *claim) grantShared(ctx context.Context, before queue) (grant locker.Grant, isGranted bool, err error) {
	token, err := k.inherit(ctx, before)
	if err != nil || token == 0 {
		return grant, false, err
	}
	if err := k.publish(ctx, token); err != nil {
		return grant, false, err
	}
	grant, err = k.grant(ctx, token)
	return grant, err == nil, err
}

// inherit finds the token. Zero means that the queue has changed and must be read again.
func (k *claim) inherit(ctx context.Context, before queue) (lockstep.Token, error) {
	if len(before) == 0 {
		return k.ownToken(ctx)
	}
	c, err := k.session.watch(ctx, join(k.dir, before[len(before)-1].name))
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return 0, nil
	case err != nil:
		return 0, err
	case c.record.Token != 0:
		return c.record.Token, nil
	default:
		return 0, k.session.awaitChange(ctx, c.changed)
	}
}

func (k *claim) ownToken(ctx context.Context) (lockstep.Token, error) {
	c, err := k.session.read(ctx, k.node)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return 0, missing("the claim's node was deleted")
	case err != nil:
		return 0, err
	}
	token, err := tokenOf(c.stat.Czxid)
	if err != nil {
		return 0, k.refuse(ctx, err)
	}
	return token, nil
}

// publish writes the token for the claims behind. Writing it twice is harmless.
func (k *claim) publish(ctx context.Context, token lockstep.Token) error {
	data := record{Owner: k.session.owner(), Token: token, Metadata: k.Metadata}.encode()
	_, err := retry(ctx, k.session, func(conn *zk.Conn) (*zk.Stat, error) { return conn.Set(k.node, data, -1) })
	if errors.Is(err, zk.ErrNoNode) {
		return missing("the claim's node was deleted")
	}
	return err
}
