package zklock

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// grantShared grants a shared claim when only shared ones are before it. Its token is that of the
// nearest one, which must have written it, or its own czxid when there is none. It waits, without a
// grant, while the nearest has not written its token yet.
//
// Why only the nearest: let i and j hold at the same time, i before j. The claim from which j took
// its token was between them or i itself, since i was there. The same goes for that claim, and so
// on down to i: the tokens are the same. A claim that took the token of any other before it could
// pass i by, and i could later take another token.
//
// Why it never falls: an exclusive claim between i and j in the queue was not granted while i was
// there, and one behind j has a later czxid than the claim from which the token of all of them
// came.
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

// inherit finds the token. Zero means that the queue has changed and must be looked at again.
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

// publish writes the token for those behind. Writing it twice does no harm.
func (k *claim) publish(ctx context.Context, token lockstep.Token) error {
	data := record{Owner: k.session.owner(), Token: token, Metadata: k.Metadata}.encode()
	_, err := retry(ctx, k.session, func(conn *zk.Conn) (*zk.Stat, error) { return conn.Set(k.node, data, -1) })
	if errors.Is(err, zk.ErrNoNode) {
		return missing("the claim's node was deleted")
	}
	return err
}
